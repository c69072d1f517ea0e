"""What a load shows: one line a second, and a line for all that is done to it."""

from __future__ import annotations

import sys
from typing import Any

import typer

from ..output import print_json_line
from .messages import Beat, Counts

__all__ = ["Screen"]


class Screen:
    """Lines for people, or JSON for machines.

    Args:
        as_json: an object a line on stdout.
    """

    def __init__(self, as_json: bool) -> None:
        self._as_json = as_json
        self._is_terminal = sys.stdout.isatty()
        self._starts = False

    def say(self, event: str, text: str, **fields: Any) -> None:
        """Something happened."""
        if self._as_json:
            print_json_line({"event": event, "text": text, **fields})
        else:
            typer.echo(("\r\033[K" if self._is_terminal else "") + text)

    def status(self, elapsed_s: float, counts: Counts, beat: Beat | None, lives: int) -> None:
        """How it goes; ``beat`` is what the engine said last, None while it starts."""
        if self._as_json:
            now = None if beat is None else {"running": beat.running, "waiting": beat.waiting}
            print_json_line(
                {
                    "event": "status",
                    "elapsed_s": round(elapsed_s, 1),
                    "lives": lives,
                    "seqno": None if beat is None else beat.seqno,
                    "now": now,
                    "counts": counts.to_json(),
                }
            )
            return
        line = _line(elapsed_s, counts, beat)
        if self._is_terminal:
            typer.echo(f"\r\033[K{line}", nl=False)
        elif beat is not None or not self._starts:  # while it starts, nothing else changes
            typer.echo(line)
        self._starts = beat is None

    def end(self) -> None:
        """Leave the last line as it is."""
        if self._is_terminal and not self._as_json:
            typer.echo("")


def _line(elapsed_s: float, counts: Counts, beat: Beat | None) -> str:
    hit = counts.resumed_tokens / counts.prompt_tokens if counts.prompt_tokens else 0.0
    now = "starting" if beat is None else f"{beat.running} run, {beat.waiting} wait"
    return (
        f"{elapsed_s:6.0f} s  {now}  {counts.requests:,} answered, {hit:.0%} of tokens reused, "
        f"{counts.evicted:,} pages evicted, {counts.loads:,} loads, "
        f"{counts.deferred:,} times put off, {counts.failures:,} failures"
    )

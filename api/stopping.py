"""Ctrl-C and SIGTERM as wishes: what runs is ended in order; a second one ends it where it is."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import typer

from .output import fail

__all__ = ["STOPPED", "until_stopped"]

STOPPED: Final = 128
"""Exit code of a command that a signal ended, less the signal's number."""


@contextmanager
def until_stopped() -> Iterator[list[int]]:
    """Signals that ask to end, as they come; the second one ends the process where it is."""
    found: list[int] = []

    def note(number: int, _: object) -> None:
        found.append(number)
        if len(found) > 1:
            raise KeyboardInterrupt

    before = {number: signal.signal(number, note) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield found
    except KeyboardInterrupt:
        fail("interrupted")
        raise typer.Exit(STOPPED + found[0]) from None
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)

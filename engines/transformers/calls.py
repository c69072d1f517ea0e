"""Calls of a model: what was fed at once, and where calls have to end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = ["Call", "split_calls"]


@dataclass(frozen=True)
class Call:
    """One call of the model: `num_tokens` from position `start`, of which `accepted` were kept."""

    start: int
    num_tokens: int
    accepted: int


def split_calls(
    start: int, end: int, captures: Sequence[int], chunk: int | None
) -> list[tuple[int, int]]:
    """Cut [start, end) into calls of at most `chunk` tokens that end at every capture inside."""
    cuts = sorted({int(position) for position in captures if start < position < end} | {end})
    calls = []
    for cut in cuts:
        while start < cut:
            stop = cut if chunk is None else min(cut, start + chunk)
            calls.append((start, stop))
            start = stop
    return calls

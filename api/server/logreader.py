"""Events of a log for answers: forwards and backwards, durable ones only, so many at a time."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import SequenceGap
from kvstrata.core.events import EVENT_DTYPE, PAGE_EVENTS_END, EventType
from kvstrata.eventstore.history.analytics.anchors import Anchors, durable_events

__all__ = ["Found", "Wanted", "read_backwards", "read_forwards"]

Events = npt.NDArray[np.void]
_NONE: Final[Events] = np.zeros(0, dtype=EVENT_DTYPE)


@dataclass(frozen=True)
class Wanted:
    """Which events are wanted.

    Attributes:
        types: of these types; all where empty.
        group: about a page of this group, or about the group itself.
        page: about this page of it.
        reasons: with one of these reasons; any where empty.
    """

    types: tuple[int, ...] = ()
    group: int | None = None
    page: int | None = None
    reasons: tuple[int, ...] = ()

    def of(self, events: Events) -> Events:
        """Those of some events that are wanted."""
        return events[self.matches(events)]

    def matches(self, events: Events) -> npt.NDArray[np.bool_]:
        """Which of some events are wanted, bool[n]."""
        keep: npt.NDArray[np.bool_] = np.ones(len(events), dtype=bool)
        if self.types:
            keep &= np.isin(events["type"], self.types)
        if self.reasons:
            keep &= np.isin(events["reason"], self.reasons)
        if self.group is not None:
            about = events["type"] < PAGE_EVENTS_END
            for kind in (EventType.VALIDATION_FAILED, EventType.NUMERIC_DRIFT):
                about |= events["type"] == kind
            keep &= about & (events["group"] == self.group)
        if self.page is not None:
            keep &= events["page"] == self.page
        return keep


@dataclass(frozen=True)
class Found:
    """Some events, and where to go on.

    Attributes:
        events: EVENT_DTYPE[n], in the order asked for.
        wall_ns: int64[n], when they happened.
        next_seqno: read on after (forwards) or before (backwards) this event; 0 where it ended.
        first_seqno: the first event that the log still holds.
    """

    events: Events
    wall_ns: npt.NDArray[np.int64]
    next_seqno: int
    first_seqno: int


def read_forwards(
    directory: Path, after: int, last: int, wanted: Wanted, limit: int, scan_events: int
) -> Found:
    """The next events after one.

    Args:
        directory: the log directory.
        after: read those behind it; 0 from the first.
        last: the last event to read.
        wanted: which of them.
        limit: at most so many.
        scan_events: look at so many at most.

    Raises:
        LogError: the log is damaged.
    """
    anchors = Anchors(directory)
    first = max(after + 1, anchors.first_seqno)
    parts: list[Events] = []
    count, at = 0, first - 1
    stop = min(last, first + scan_events - 1)
    try:
        for batch in durable_events(directory, first, stop):
            at = int(batch["seqno"][-1])
            kept = wanted.of(batch)[: limit - count]
            if len(kept):
                parts.append(kept)
                count += len(kept)
            if count == limit:
                at = int(kept["seqno"][-1])
                break
    except SequenceGap:
        pass  # pruned in this moment: the next question begins behind it
    found = np.concatenate(parts) if parts else _NONE
    return Found(found, anchors.wall_ns(found), max(at, after), anchors.first_seqno)


def read_backwards(
    directory: Path, before: int, wanted: Wanted, limit: int, scan_events: int
) -> Found:
    """The events before one, newest first.

    Args:
        directory: the log directory.
        before: read those in front of it.
        wanted: which of them.
        limit: at most so many.
        scan_events: look at about so many at most, whole segments.

    Raises:
        LogError: the log is damaged.
    """
    anchors = Anchors(directory)
    firsts = [segment.header.first_seqno for segment in anchors.segments]
    parts: list[Events] = []
    count = looked = next_seqno = 0
    end = before - 1
    for first in reversed(firsts):
        if first > end:
            continue
        if looked >= scan_events:
            next_seqno = end + 1
            break
        kept = _of_segment(directory, first, end, wanted.of)
        looked += end - first + 1
        end = first - 1
        newest = kept[::-1][: limit - count]
        if len(newest):
            parts.append(newest)
            count += len(newest)
        if count == limit:
            next_seqno = int(newest["seqno"][-1]) if end or len(newest) < len(kept) else 0
            break
    found = np.concatenate(parts) if parts else _NONE
    return Found(found, anchors.wall_ns(found), next_seqno, anchors.first_seqno)


def _of_segment(directory: Path, first: int, last: int, keep: Callable[[Events], Any]) -> Events:
    try:
        parts = [keep(batch) for batch in durable_events(directory, first, last)]
    except SequenceGap:
        return _NONE
    return np.concatenate(parts) if parts else _NONE

"""Events that went by lately, in memory: tails and short questions need not read the log again."""

from __future__ import annotations

import threading
from collections import deque
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.events import EVENT_DTYPE
from kvstrata.eventstore.log.directory import LogPaths

from .logreader import Found, Wanted, read_backwards, read_forwards

if TYPE_CHECKING:
    from pathlib import Path

    from kvstrata.eventstore.history.follower import Follower

__all__ = ["RareEvents", "RecentEvents"]

Events = npt.NDArray[np.void]
_MOST: Final = 1 << 16
_NONE: Final[Events] = np.zeros(0, dtype=EVENT_DTYPE)


class _Heard:
    """Copies of a follower's events with their wall times, since it was made."""

    def __init__(self, follower: Follower, wanted: Wanted, most: int) -> None:
        self._follower = follower
        self._wanted = wanted
        self._most = most
        self._lock = threading.Lock()
        self._parts: deque[tuple[Events, npt.NDArray[np.int64]]] = deque()
        self._size = 0
        position = follower.position()
        self._epoch = position.epoch
        self.since = position.seqno + 1
        """Every event from this one on was heard, but for those given up for want of room."""
        self._until = position.seqno
        follower.add_listener(self._went_by)

    def _went_by(self, events: Events) -> None:
        position = self._follower.position()
        offset_ns = position.event_time_ns - int(events["time_ns"][-1])
        with self._lock:
            if position.epoch == self._epoch:
                # A follower that began anew tells events again that were heard.
                events = events[np.searchsorted(events["seqno"], self._until + 1) :]
                if not len(events):
                    return
            first = int(events["seqno"][0])
            if position.epoch != self._epoch or first != self._until + 1:  # or some were pruned
                self._epoch, self._size, self.since = position.epoch, 0, first
                self._parts.clear()
            self._until = int(events["seqno"][-1])
            kept = self._wanted.of(events)[-self._most :].copy()
            times = kept["time_ns"].astype(np.int64) + offset_ns
            if len(kept) == self._most:  # there may have been more
                self._parts.clear()
                self._size, self.since = 0, int(kept["seqno"][0])
            if len(kept):
                self._parts.append((kept, times))
                self._size += len(kept)
            while self._size > self._most and len(self._parts) > 1:
                gone, _ = self._parts.popleft()
                self._size -= len(gone)
                self.since = int(self._parts[0][0]["seqno"][0])

    def heard(self) -> tuple[int, int, Events, npt.NDArray[np.int64]]:
        """From which event on, up to which, the events, and when they happened."""
        with self._lock:
            parts = list(self._parts)
            since, until = self.since, self._until
        if not parts:
            return since, until, _NONE, np.zeros(0, dtype=np.int64)
        return (
            since,
            until,
            np.concatenate([events for events, _ in parts]),
            np.concatenate([times for _, times in parts]),
        )


class RecentEvents:
    """The last events of a log, from memory where they went by, else from the log.

    Args:
        follower: whose events go by.
        most: kept in memory.
    """

    def __init__(self, follower: Follower, most: int = _MOST) -> None:
        self._directory: Path = follower.directory
        self._heard = _Heard(follower, Wanted(), most)

    def forwards(
        self, after: int, last: int, wanted: Wanted, limit: int, scan_events: int
    ) -> Found:
        """The next events after one; see :func:`.logreader.read_forwards`."""
        since, until, events, times = self._heard.heard()
        if after + 1 < since or not len(events):
            return read_forwards(self._directory, after, last, wanted, limit, scan_events)
        last = min(last, until)  # the follower tells of events a little after it applied them
        seqnos = events["seqno"]
        first = int(np.searchsorted(seqnos, after + 1))
        end = int(np.searchsorted(seqnos, last + 1))
        chosen = np.flatnonzero(wanted.matches(events[first:end])) + first
        is_cut = len(chosen) > limit
        chosen = chosen[:limit]
        at = int(seqnos[chosen[-1]]) if is_cut else max(last, after)
        return Found(events[chosen], times[chosen], at, _first_seqno(self._directory))


class RareEvents:
    """The newest events of some rare types; the log's past is looked through once.

    Args:
        follower: whose events go by.
        types: of events.
        most: kept in memory.
    """

    def __init__(self, follower: Follower, types: tuple[int, ...], most: int = 1000) -> None:
        self._directory: Path = follower.directory
        self._wanted = Wanted(types)
        self._most = most
        self._heard = _Heard(follower, self._wanted, most)
        self._lock = threading.Lock()
        self._before: tuple[int, Found] | None = None

    def newest(self, limit: int, scan_events: int) -> Found:
        """The newest ones, newest first; where to go on is as of :func:`.logreader`'s.

        Args:
            limit: at most so many.
            scan_events: look at about so many of the log's past at most, once.
        """
        since, _, events, times = self._heard.heard()
        events, times = events[::-1], times[::-1]
        if len(events) >= limit:
            next_seqno = int(events["seqno"][limit - 1])
            return Found(events[:limit], times[:limit], next_seqno, _first_seqno(self._directory))
        with self._lock:
            if self._before is None or self._before[0] != since:
                found = read_backwards(
                    self._directory, since, self._wanted, self._most, scan_events
                )
                self._before = since, found
            before = self._before[1]
        room = limit - len(events)
        cut = len(before.events) > room
        joined = np.concatenate([events, before.events[:room]])
        next_seqno = int(joined["seqno"][-1]) if cut and len(joined) else before.next_seqno
        all_times = np.concatenate([times, before.wall_ns[:room]])
        return Found(joined, all_times, next_seqno, before.first_seqno)


def _first_seqno(directory: Path) -> int:
    return LogPaths(directory).first_seqno() or 1

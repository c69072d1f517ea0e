"""When an event happened, by its seqno: samples of the events that went by, and segment headers."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import KvstrataError
from kvstrata.eventstore.log.chain import load_segments
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.identity import Format

if TYPE_CHECKING:
    from kvstrata.eventstore.history.follower import Follower

__all__ = ["EventClock"]

_EVERY: Final = 1024
_MOST: Final = 1 << 16


class EventClock:
    """Wall time of events, exact at samples and interpolated between them.

    A sample is taken at the end of every batch that the follower applies, and every so many events
    inside it; older events are told by the beginnings of their segments.

    Args:
        follower: whose events go by.
    """

    def __init__(self, follower: Follower) -> None:
        self._follower = follower
        self._lock = threading.Lock()
        self._seqnos: list[int] = []
        self._times_s: list[float] = []
        self._epoch = ""
        self._begin()
        follower.add_listener(self._went_by)

    def times_s(self, seqnos: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
        """When events happened, float64[n] seconds of the Unix epoch; NaN where nothing is known.

        Args:
            seqnos: int64[n].
        """
        with self._lock:
            known, times = np.array(self._seqnos), np.array(self._times_s)
        if not len(known):
            return np.full(len(seqnos), np.nan)
        found: npt.NDArray[np.float64] = np.interp(seqnos.astype(np.float64), known, times)
        found[seqnos <= 0] = np.nan
        return found

    def seqno_at(self, time_s: float) -> float:
        """About which event happened at a time; infinite where nothing is known."""
        with self._lock:
            known, times = np.array(self._seqnos), np.array(self._times_s)
        if not len(known):
            return float("inf")
        return float(np.interp(time_s, times, known, left=0.0, right=float("inf")))

    def _begin(self) -> None:
        position = self._follower.position()
        self._epoch = position.epoch
        seqnos, times_s = _begun(self._follower.directory)
        before = [index for index, seqno in enumerate(seqnos) if seqno <= position.seqno]
        self._seqnos = [seqnos[index] for index in before]
        self._times_s = [times_s[index] for index in before]
        if position.event_time_ns and position.seqno > (self._seqnos or [0])[-1]:
            self._seqnos.append(position.seqno)
            self._times_s.append(position.event_time_ns / 1e9)

    def _went_by(self, events: npt.NDArray[np.void]) -> None:
        position = self._follower.position()
        last_ns = int(events["time_ns"][-1])
        picked = np.append(np.arange(0, len(events) - 1, _EVERY), len(events) - 1)
        seqnos = events["seqno"][picked].astype(np.int64).tolist()
        ago_s = (last_ns - events["time_ns"][picked].astype(np.int64)) / 1e9
        times_s = (position.event_time_ns / 1e9 - ago_s).tolist()
        with self._lock:
            if position.epoch != self._epoch:
                self._begin()
            for seqno, time_s in zip(seqnos, times_s, strict=True):
                if not self._seqnos or seqno > self._seqnos[-1]:
                    self._seqnos.append(seqno)
                    self._times_s.append(max(time_s, (self._times_s or [time_s])[-1]))
            if len(self._seqnos) > _MOST:  # every second of the older half goes
                half = _MOST // 2
                self._seqnos = self._seqnos[:half:2] + self._seqnos[half:]
                self._times_s = self._times_s[:half:2] + self._times_s[half:]


def _begun(directory: Path) -> tuple[list[int], list[float]]:
    """First events of the log's segments, and when those were begun."""
    try:
        paths = LogPaths(directory)
        headers = [segment.header for segment in load_segments(paths, Format.read(paths))]
    except (KvstrataError, OSError):
        return [], []
    times_s = np.maximum.accumulate([header.realtime_ns / 1e9 for header in headers] or [0.0])
    return [header.first_seqno for header in headers], times_s.tolist()[: len(headers)]

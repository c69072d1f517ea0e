"""One log as a follower reads it: which log, where to begin, and the segments one by one."""

import contextlib
import os
from pathlib import Path

import numpy as np

from kvstrata.core.arena import ArenaParams
from kvstrata.core.errors import ConfigError, KvstrataError
from kvstrata.core.events import EventType
from kvstrata.core.layout import CacheLayout
from kvstrata.core.words import META_LAST_SEQNO
from kvstrata.eventstore.log.blobs import get_blob
from kvstrata.eventstore.log.chain import Damage, refusal
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.projection import Words
from kvstrata.eventstore.log.reader import stored_projection
from kvstrata.eventstore.log.snapshot import fresh_or_snapshot, newest_snapshot

from .durable import DurableMark
from .tail import ReadBuffers, SegmentTail

__all__ = ["Following", "is_replaced"]

_OPENED = int(EventType.MANAGER_OPENED)


class Following:
    """A log, the arena of one follower, and the segment that is read.

    Args:
        directory: the log directory.
        shared_memory_root: where its ring is.

    Attributes:
        epoch: id of the log, hexadecimal.
        arena: the tables, from the newest snapshot on.
        seqno: of the last event applied to them.
        event_time_ns: wall time of that event, 0 where none was read.
        segment_id: of the segment that is read, 0 before the first.

    Raises:
        ConfigError: it is not a log directory.
        LogError: it is damaged, or of another version.
    """

    def __init__(self, directory: Path, shared_memory_root: Path) -> None:
        self.paths = LogPaths(directory)
        self._identity, self.projection = stored_projection(directory)
        self.epoch = self._identity.log_id.hex()
        self.format_stamp = _stamp(self.paths)
        self.layout = CacheLayout.from_json(self._identity.layout)
        self.params = ArenaParams(**self._identity.params)
        self.durable = DurableMark(self.paths, self._identity.log_id, shared_memory_root)
        snapshot, _ = newest_snapshot(self.paths, self._identity)
        self.arena: Words
        self.arena, started_at = fresh_or_snapshot(self.projection, snapshot)
        self._check_start(started_at)
        self.event_time_ns = 0
        self.segment_id = 0
        self._next_seqno = started_at + 1
        self._buffers = ReadBuffers()
        self._tail: SegmentTail | None = None
        self._tiers: tuple[str, ...] | None = None

    @property
    def seqno(self) -> int:
        """See the class."""
        return int(self.arena[META_LAST_SEQNO])

    def first_seqno(self) -> int:
        """Of the first event that the log still holds."""
        return self.paths.first_seqno() or self.seqno + 1

    def _check_start(self, started_at: int) -> None:
        first = self.paths.first_seqno() or 1
        if first > started_at + 1:
            path = self.paths.segment(first)
            damage = Damage(path, 0, "START_MISSING", f"a log that begins with {first}")
            raise refusal(damage, f"a snapshot at event {first - 1} or later")

    def has_snapshot_after(self, seqno: int) -> bool:
        """Whether there is a snapshot behind an event."""
        snapshots = self.paths.snapshot_files()
        return bool(snapshots) and int(snapshots[-1].stem) > seqno

    def start_reading(self, seqno: int) -> None:
        """Read on from an event that the log holds, or will hold next."""
        self._next_seqno = seqno
        self.close()
        for path in reversed(self.paths.segment_files()):
            if int(path.stem) <= seqno:
                self._open_tail(SegmentTail(path, self._identity))
                return

    def _open_tail(self, tail: SegmentTail) -> None:
        self.close()
        self._tail = tail
        self.segment_id = tail.segment.header.segment_id

    def read(self, most: int) -> Words | None:
        """The next durable events, at most about so many; empty where there is none yet.

        Returns:
            int64[n, 8], valid until the next read; None where the next event was pruned away.

        Raises:
            CorruptSegment: a durable event is damaged.
            SegmentChanged: what was read before is no longer there.
        """
        durable = self.durable.read()
        while True:
            tail = self._open_segment()
            if tail is None:
                return None if self._is_pruned(durable) else self._buffers.take_events(0)
            try:
                words = tail.read(durable, most, self._buffers)
            except FileNotFoundError:
                return None
            skip = max(self._next_seqno - (tail.next_seqno - len(words)), 0)
            words = words[skip:]
            if len(words):
                self._next_seqno = tail.next_seqno
                return words
            if tail.footer is None and tail.next_seqno > durable:
                return words

    def _open_segment(self) -> SegmentTail | None:
        """The segment that holds the next event; None where none does yet."""
        tail = self._tail
        if tail is not None and tail.footer is None:
            return tail
        path = self.paths.segment(self._next_seqno)
        before = None
        if tail is not None and tail.footer is not None:
            path, before = self.paths.segment(tail.next_seqno), (tail.segment, tail.footer)
            if path == tail.segment.path:
                return None
        try:
            self._open_tail(SegmentTail(path, self._identity, before))
        except FileNotFoundError:
            return None
        return self._tail

    def _is_pruned(self, durable_seqno: int) -> bool:
        """Whether the log goes on behind the next event, but no longer holds it.

        Raises:
            CorruptSegment: it holds older ones, so that it was not pruned: a segment is missing.
        """
        firsts = [int(path.stem) for path in self.paths.segment_files()]
        if not firsts or firsts[-1] <= self._next_seqno or self._next_seqno in firsts:
            return False
        if firsts[0] > self._next_seqno:
            return True
        path = self.paths.segment(self._next_seqno)
        damage = Damage(path, 0, "SEGMENT_MISSING", "no segment that begins with the next event")
        raise refusal(damage, f"events up to {durable_seqno}")

    def look_at(self, words: Words) -> None:
        """Note what applied events say of time and of the engine's tiers."""
        if not len(words) or self._tail is None:
            return
        header = self._tail.segment.header
        self.event_time_ns = int(words[-1, 1]) - header.monotonic_ns + header.realtime_ns
        if np.any((words[:, 2] & 0xFF) == _OPENED):
            self._tiers = None

    def tier_names(self) -> tuple[str, ...]:
        """Names of the tiers below the device, as the engine said last when it opened."""
        if self._tiers is None:
            self._tiers = _named_last(self.paths)
        return self._tiers

    def close(self) -> None:
        """Close the segment that is read."""
        if self._tail is not None:
            self._tail.close()
            self._tail = None


def _named_last(paths: LogPaths) -> tuple[str, ...]:
    """The tiers that the newest blob of an opening names; none where none does."""
    newest: list[tuple[int, str]] = []
    for path in paths.blobs.glob("*"):
        with contextlib.suppress(FileNotFoundError):
            newest.append((path.stat().st_mtime_ns, path.name))
    for _, name in sorted(newest, reverse=True):
        with contextlib.suppress(KvstrataError, ValueError):
            value = get_blob(paths, bytes.fromhex(name))
            if isinstance(value, dict) and "tiers" in value:
                return tuple(str(one) for one in value["tiers"])
    return ()


def _stamp(paths: LogPaths) -> tuple[int, int]:
    """What changes where another log takes the directory's place."""
    found = os.stat(paths.format)
    return found.st_ino, found.st_mtime_ns


def is_replaced(following: Following) -> bool:
    """Whether another log, or another copy of the same one, has taken the directory's place.

    Raises:
        ConfigError: there is none any more.
    """
    try:
        return _stamp(following.paths) != following.format_stamp
    except FileNotFoundError:
        raise ConfigError(
            f"expected the log that was followed, found it gone from {following.paths.root}"
        ) from None

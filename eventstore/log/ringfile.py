"""The ring's file: made, mapped, checked, and its events read back after a crash.

The header words up to RING_PID are the core's; words 64 and up belong to the log writer.
"""

import mmap
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from kvstrata.core.events import EVENT_WORDS, LAST_OF_CALL
from kvstrata.core.ring import (
    RING_BOOT_ID_0,
    RING_BOOT_ID_1,
    RING_CAPACITY,
    RING_DRAINED,
    RING_DURABLE,
    RING_FLAGS,
    RING_HEAD,
    RING_HEADER_WORDS,
    RING_HEARTBEAT_NS,
    RING_INCARNATION,
    RING_MAGIC,
    RING_MAGIC_VALUE,
    RING_PID,
    RING_STALLS,
    new_ring,
    ring_bytes,
)

from .projection import Words
from .system import System
from .tmpfs import check_room

__all__ = [
    "RING_LOG_ID_0",
    "RING_LOG_ID_1",
    "RING_NUM_SYNCS",
    "RING_SEGMENT_ID",
    "RING_WRITER_PHASE",
    "RingFile",
    "begin_incarnation",
    "make_ring",
    "map_ring",
    "ring_durable",
    "ring_events",
]

(
    RING_WRITER_PHASE,
    RING_NUM_SYNCS,
    RING_SEGMENT_ID,
    RING_LOG_ID_0,
    RING_LOG_ID_1,
) = range(64, 69)

_FLAGS_BIT: Final = 40


@dataclass(frozen=True)
class RingFile:
    """A mapped ring."""

    words: Words
    memory: mmap.mmap

    @property
    def capacity(self) -> int:
        """Events it holds."""
        return int(self.words[RING_CAPACITY])

    @property
    def log_id(self) -> bytes:
        """Which log it belongs to."""
        return self.words[RING_LOG_ID_0 : RING_LOG_ID_1 + 1].tobytes()

    @property
    def boot_id(self) -> bytes:
        """The boot it was made in."""
        return self.words[RING_BOOT_ID_0 : RING_BOOT_ID_1 + 1].tobytes()

    def slices(self, first_seqno: int, count: int) -> list[memoryview]:
        """The bytes of ``count`` events, as one piece or two; nothing is copied."""
        view = memoryview(self.memory)
        start = (first_seqno - 1) % self.capacity
        until_wrap = min(count, self.capacity - start)
        base, size = RING_HEADER_WORDS * 8, EVENT_WORDS * 8
        pieces = [view[base + start * size : base + (start + until_wrap) * size]]
        if until_wrap < count:
            pieces.append(view[base : base + (count - until_wrap) * size])
        return pieces


def map_ring(path: Path, access: int = mmap.ACCESS_WRITE) -> RingFile | None:
    """Map an existing ring.

    Args:
        path: its file.
        access: ``mmap.ACCESS_READ`` for a reader.

    Returns:
        The ring, or None where there is no file or it is no ring.
    """
    try:
        descriptor = os.open(path, (os.O_RDONLY if access == mmap.ACCESS_READ else os.O_RDWR))
    except FileNotFoundError:
        return None
    try:
        size = os.fstat(descriptor).st_size
        if size < ring_bytes(0):
            return None
        memory = mmap.mmap(descriptor, size, access=access)
    finally:
        os.close(descriptor)
    words: Words = np.frombuffer(memory, dtype=np.int64)
    capacity = int(words[RING_CAPACITY])
    if words[RING_MAGIC] != RING_MAGIC_VALUE or capacity < 1 or ring_bytes(capacity) != size:
        return None
    return RingFile(words, memory)


def make_ring(system: System, path: Path, capacity: int) -> RingFile:
    """Make a ring file; what had its name is replaced.

    Raises:
        ConfigError: the file system has no room for it.
    """
    size = ring_bytes(capacity)
    there = path.stat().st_size if path.exists() else 0
    check_room(path.parent, size - there, f"a ring of {capacity} events")
    system.unlink(path)
    temporary = path.with_name("ring.tmp")
    descriptor = system.open(temporary, os.O_CREAT | os.O_TRUNC | os.O_RDWR)
    try:
        system.fallocate(descriptor, size)  # a hole would be a SIGBUS later
        # All pages now: found one by one, on first use, they would cost the engine's thread.
        memory = mmap.mmap(descriptor, size, mmap.MAP_SHARED | mmap.MAP_POPULATE)
    except OSError:
        system.unlink(temporary)
        raise
    finally:
        system.close(descriptor)
    words: Words = new_ring(capacity, memory)
    system.rename(temporary, path)
    return RingFile(words, memory)


def begin_incarnation(
    ring: RingFile, system: System, log_id: bytes, seqno: int, number: int
) -> None:
    """Hand a ring to the next incarnation. Everything up to ``seqno`` is durable.

    The incarnation is stored last: a crash before leaves the ring to the one before.

    Mutates:
        ring.
    """
    words = ring.words
    words[RING_HEAD] = words[RING_DRAINED] = words[RING_DURABLE] = seqno
    words[RING_FLAGS] = words[RING_STALLS] = 0
    words[RING_BOOT_ID_0 : RING_BOOT_ID_1 + 1] = np.frombuffer(system.boot_id(), np.int64)
    words[RING_LOG_ID_0 : RING_LOG_ID_1 + 1] = np.frombuffer(log_id, np.int64)
    words[RING_PID] = os.getpid()
    words[RING_HEARTBEAT_NS] = system.monotonic_ns()
    words[RING_WRITER_PHASE] = words[RING_NUM_SYNCS] = 0
    words[RING_INCARNATION] = number


def ring_events(ring: RingFile, after_seqno: int) -> Words | None:
    """Copy the published events after a seqno.

    Returns:
        int64[n, 8], or None where the ring does not hold a whole consecutive run of them. What
        the writer has drained may be overwritten at any time and so counts as not held.
    """
    head = int(ring.words[RING_HEAD])
    count = head - after_seqno
    if count < 0 or count > ring.capacity:
        return None
    events = np.frombuffer(b"".join(ring.slices(after_seqno + 1, count)), dtype=np.int64)
    events = events.reshape(-1, EVENT_WORDS)
    if ring.words[RING_DRAINED] > after_seqno:
        return None
    if count and not (
        np.array_equal(events[:, 0], np.arange(after_seqno + 1, head + 1))
        and (int(events[-1, 2]) >> _FLAGS_BIT) & LAST_OF_CALL
    ):
        return None
    return events


def ring_durable(
    ring: RingFile | None, log_id: bytes, system: System, newest_incarnation: int
) -> int:
    """The seqno a surviving ring proves durable; 0 where it proves nothing.

    A ring of a later incarnation than the newest segment's belongs to a log that was since
    replaced by an older copy: it says nothing about this one.
    """
    if ring is None or ring.log_id != log_id or ring.boot_id != system.boot_id():
        return 0
    if not 0 < int(ring.words[RING_INCARNATION]) <= newest_incarnation:
        return 0
    return int(ring.words[RING_DURABLE])

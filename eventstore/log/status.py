"""The status page, read: what a log cannot say about itself."""

import mmap
import os
import time
from dataclasses import dataclass
from pathlib import Path

from kvstrata.core.ring import (
    RING_CAPACITY,
    RING_DRAINED,
    RING_DURABLE,
    RING_FLAG_CLOSED,
    RING_FLAG_POISONED,
    RING_FLAG_UNLOGGED,
    RING_FLAGS,
    RING_HEAD,
    RING_HEARTBEAT_NS,
    RING_INCARNATION,
    RING_PID,
    RING_STALLS,
)

from .cursors import Phase
from .projection import Words
from .ringfile import RING_NUM_SYNCS, RING_SEGMENT_ID, RING_WRITER_PHASE, map_ring
from .tmpfs import DEFAULT_ROOT, place_of

__all__ = ["LogStatus", "read_status", "status_of"]


@dataclass(frozen=True)
class LogStatus:
    """One look at the status page.

    Attributes:
        head: last seqno published.
        drained: last seqno written.
        durable: last seqno synced.
        capacity: events the ring holds.
        poisoned: a write or sync failed.
        unlogged: the log epoch was ended; a restart will be cold.
        closed: the log was closed.
        stalled: not closed, and the writer has been silent for longer than the stall limit.
        writer_alive: the process that holds the ring exists.
        silence_ms: since the writer's last sign of life.
        phase: what it was doing then.
        num_stalls: waits for room in the ring.
        num_syncs: of this incarnation.
        segment_id: the open segment.
        incarnation: this life of the engine.
        pid: its process.
    """

    head: int
    drained: int
    durable: int
    capacity: int
    poisoned: bool
    unlogged: bool
    closed: bool
    stalled: bool
    writer_alive: bool
    silence_ms: float
    phase: Phase
    num_stalls: int
    num_syncs: int
    segment_id: int
    incarnation: int
    pid: int


def status_of(words: Words, stall_limit_ms: float) -> LogStatus:
    """The status page of a mapped ring."""
    flags = int(words[RING_FLAGS])
    pid = int(words[RING_PID])
    silence_ms = max(0.0, (time.monotonic_ns() - int(words[RING_HEARTBEAT_NS])) / 1e6)
    closed = bool(flags & RING_FLAG_CLOSED)
    return LogStatus(
        head=int(words[RING_HEAD]),
        drained=int(words[RING_DRAINED]),
        durable=int(words[RING_DURABLE]),
        capacity=int(words[RING_CAPACITY]),
        poisoned=bool(flags & RING_FLAG_POISONED),
        unlogged=bool(flags & RING_FLAG_UNLOGGED),
        closed=closed,
        stalled=not closed and silence_ms > stall_limit_ms,
        writer_alive=not closed and _is_alive(pid),
        silence_ms=silence_ms,
        phase=Phase(int(words[RING_WRITER_PHASE])),
        num_stalls=int(words[RING_STALLS]),
        num_syncs=int(words[RING_NUM_SYNCS]),
        segment_id=int(words[RING_SEGMENT_ID]),
        incarnation=int(words[RING_INCARNATION]),
        pid=pid,
    )


def read_status(
    directory: Path, shared_memory_root: Path = DEFAULT_ROOT, stall_limit_ms: float = 2000.0
) -> LogStatus | None:
    """The status page of a directory's engine, from any process.

    Returns:
        None where no ring exists.
    """
    ring = map_ring(place_of(directory, shared_memory_root).ring, mmap.ACCESS_READ)
    return None if ring is None else status_of(ring.words, stall_limit_ms)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True

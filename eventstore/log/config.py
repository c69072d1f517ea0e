"""Settings of the event log, validated on construction."""

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EVENT_BYTES

from .formats import RECORD_BYTES, SEGMENT_HEADER_BYTES

__all__ = ["Durability", "LogConfig"]

_LARGEST_RING: Final = 1 << 28


class Durability(StrEnum):
    """When what was written is synced to the device without being asked."""

    NONE = "none"
    """Only by ``flush()``, at the end of a segment and on close."""
    INTERVAL = "interval"
    """Every ``sync_interval_ms``: power loss takes at most that much."""
    ALWAYS = "always"
    """After every write."""


@dataclass(frozen=True)
class LogConfig:
    """How one log directory is written.

    Attributes:
        ring_events: events the shared ring holds, a power of two.
        segment_bytes: size at which a segment is sealed and the next one begins.
        durability: when syncs happen without being asked.
        sync_interval_ms: longest time between an event and its sync (``interval``), and between
            an event and its write (``none``).
        stall_limit_ms: a writer silent for longer counts as stalled.
        flush_timeout_ms: longest wait of a ``flush()`` that names no limit.
        segments_per_snapshot: a snapshot is taken each time so many segments were sealed;
            0 takes none on rotation.
        snapshots_kept: newest snapshots kept; older ones are deleted.
        retention_bytes: sealed segments beyond so many bytes are deleted, oldest first, once
            the oldest kept snapshot covers them; None keeps every segment.
        shared_memory_root: tmpfs folder for the ring and the pools.
        rank: this engine's place in its group, written into every segment.
    """

    ring_events: int = 1 << 18
    segment_bytes: int = 64 << 20
    durability: Durability = Durability.INTERVAL
    sync_interval_ms: float = 5.0
    stall_limit_ms: float = 2000.0
    flush_timeout_ms: float = 10_000.0
    segments_per_snapshot: int = 1
    snapshots_kept: int = 2
    retention_bytes: int | None = None
    shared_memory_root: Path = Path("/dev/shm")
    rank: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "shared_memory_root", Path(self.shared_memory_root))
        try:
            object.__setattr__(self, "durability", Durability(self.durability))
        except ValueError:
            names = ", ".join(Durability)
            raise ConfigError(
                f"durability: expected one of {names}, found {self.durability!r}"
            ) from None
        events = self.ring_events
        if not 64 <= events <= _LARGEST_RING or events & (events - 1):
            raise ConfigError(
                f"ring_events: expected a power of two from 64 to {_LARGEST_RING}, found {events}"
            )
        # A call fills at most a quarter of the ring and is never split across batches.
        least = SEGMENT_HEADER_BYTES + 2 * RECORD_BYTES + events // 4 * EVENT_BYTES
        _at_least("segment_bytes", self.segment_bytes, least)
        if self.segment_bytes % SEGMENT_HEADER_BYTES:
            raise ConfigError(
                f"segment_bytes: expected a multiple of {SEGMENT_HEADER_BYTES}, "
                f"found {self.segment_bytes}"
            )
        _at_least("sync_interval_ms", self.sync_interval_ms, 0.1)
        _at_least("stall_limit_ms", self.stall_limit_ms, 2 * self.sync_interval_ms)
        _at_least("flush_timeout_ms", self.flush_timeout_ms, 1)
        _at_least("segments_per_snapshot", self.segments_per_snapshot, 0)
        _at_least("snapshots_kept", self.snapshots_kept, 1)
        if self.retention_bytes is not None:
            _at_least("retention_bytes", self.retention_bytes, 0)
        if not 0 <= self.rank < 1 << 32:
            raise ConfigError(f"rank: expected 0 to 2**32 - 1, found {self.rank}")


def _at_least(name: str, value: float, least: float) -> None:
    if not value >= least:
        raise ConfigError(f"{name}: expected at least {least:g}, found {value:g}")

"""Recover a directory as an engine would, or rehearse it without changing anything."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from kvstrata import CacheManager, ConfigError, PoolSet, Recovery
from kvstrata.core.ring import RING_FLAG_UNLOGGED, RING_FLAGS, new_ring
from kvstrata.eventstore.log import RecoveryReport, open_replayed, place_of
from kvstrata.recovery import recover as end_and_begin

from .directories import LogDirectory

__all__ = ["recover", "rehearse"]


def recover(log: LogDirectory, shared_memory_root: Path) -> Recovery:
    """Open the directory as its engine would, and close it again.

    Raises:
        CorruptSegment: acknowledged events are damaged or gone.
        DirectoryBusy: an engine is writing it.

    Mutates:
        The directory, its ring and its pools.
    """
    pools: Literal["shared"] | None = "shared" if _has_pools(log, shared_memory_root) else None
    config = log.config(shared_memory_root)
    with CacheManager.open(log.layout, config, log.path, pools) as cache:
        if cache.recovery is None:
            raise ConfigError(f"{log.path}: expected a manager with a log, found none")
        return cache.recovery


def rehearse(log: LogDirectory, shared_memory_root: Path) -> Recovery:
    """What :func:`recover` would find and keep, computed in private memory.

    Raises:
        CorruptSegment: acknowledged events are damaged or gone.
    """
    arena, report = open_replayed(log.path, shared_memory_root)
    ring = new_ring(log.config(shared_memory_root).log.ring_events)
    ring[RING_FLAGS] = RING_FLAG_UNLOGGED
    config = log.config(shared_memory_root)
    manager = CacheManager(log.layout, config, arena, ring, None)
    trusted = report.bytes_trusted
    if _has_pools(log, shared_memory_root):
        pools = _attach(log, shared_memory_root) if trusted else None
        trusted = pools is not None
        manager._attach(pools)
    try:
        unwritten = _Unwritten(report, report.incarnation + 1)
        return end_and_begin(manager._call, unwritten, log.layout, log.params, manager, trusted)
    finally:
        manager.close()


@dataclass(frozen=True)
class _Unwritten:
    """Stands in for the event log of a rehearsal: keeps nothing."""

    recovery: RecoveryReport
    incarnation: int

    def put_blob(self, value: Any) -> bytes:
        return bytes(16)

    def settle_recovery(self) -> None:
        """Nothing is to be settled."""


def _pools_folder(log: LogDirectory, shared_memory_root: Path) -> Path:
    return place_of(log.path, shared_memory_root).pools


def _has_pools(log: LogDirectory, shared_memory_root: Path) -> bool:
    return any(_pools_folder(log, shared_memory_root).glob("*"))


def _attach(log: LogDirectory, shared_memory_root: Path) -> PoolSet | None:
    try:
        return PoolSet.attach(log.layout, log.params.slots, _pools_folder(log, shared_memory_root))
    except ConfigError:
        return None

"""Shared memory that no engine uses: found by its owner.json, removed on request."""

import json
import mmap
import shutil
from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from kvstrata.core.errors import DirectoryBusy
from kvstrata.core.ring import RING_FLAG_CLOSED, RING_FLAGS

from .directory import LogPaths
from .lock import DirectoryLock, is_locked
from .ringfile import map_ring
from .tmpfs import DEFAULT_ROOT, PLACE_PREFIX, Place, place_of

__all__ = ["Orphan", "OrphanReason", "clean_orphans", "find_orphans"]


class OrphanReason(StrEnum):
    """Why nobody needs a place, from the safest to remove to the dearest."""

    GONE = "its directory is gone"
    NAMELESS = "it names no directory"
    CLOSED = "its engine was closed: the next start will be cold"
    CRASHED = "its engine crashed: events not yet in the log would be lost"


@dataclass(frozen=True)
class Orphan:
    """One place without an engine.

    Attributes:
        place: its folder.
        directory: the log directory it names, None where it names none.
        reason: why it counts as an orphan.
        num_bytes: memory it holds.
    """

    place: Path
    directory: Path | None
    reason: OrphanReason
    num_bytes: int


def find_orphans(shared_memory_root: Path = DEFAULT_ROOT) -> list[Orphan]:
    """Places of directories that are gone or that no engine writes; changes nothing."""
    found = []
    for folder in sorted(shared_memory_root.glob(f"{PLACE_PREFIX}*")):
        if not folder.is_dir() or folder.is_symlink():
            continue
        directory = _owner(folder, shared_memory_root)
        reason = _reason(folder, directory)
        if reason is not None:
            found.append(Orphan(folder, directory, reason, _num_bytes(folder)))
    return found


def clean_orphans(
    shared_memory_root: Path = DEFAULT_ROOT,
    reasons: Collection[OrphanReason] = (OrphanReason.GONE, OrphanReason.CLOSED),
) -> list[Orphan]:
    """Remove orphans.

    Args:
        shared_memory_root: where to look.
        reasons: which ones to remove.

    Returns:
        What was removed.
    """
    removed = []
    for orphan in find_orphans(shared_memory_root):
        if orphan.reason not in reasons:
            continue
        lock = None
        if orphan.directory is not None and orphan.directory.is_dir():
            try:
                lock = DirectoryLock(LogPaths(orphan.directory))
            except (DirectoryBusy, OSError):
                continue  # an engine came up meanwhile, or it is another user's
        try:
            shutil.rmtree(orphan.place, ignore_errors=True)
        finally:
            if lock is not None:
                lock.release()
        if not orphan.place.exists():
            removed.append(orphan)
    return removed


def _owner(folder: Path, shared_memory_root: Path) -> Path | None:
    """The directory a place belongs to; None where its name is not that directory's."""
    try:
        directory = Path(json.loads((folder / "owner.json").read_bytes())["directory"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return directory if place_of(directory, shared_memory_root).root == folder else None


def _reason(folder: Path, directory: Path | None) -> OrphanReason | None:
    if directory is None:
        return OrphanReason.NAMELESS
    paths = LogPaths(directory)
    if not paths.format.exists():
        return OrphanReason.GONE
    if is_locked(paths):
        return None
    ring = map_ring(Place(folder, True, "").ring, mmap.ACCESS_READ)
    if ring is not None and int(ring.words[RING_FLAGS]) & RING_FLAG_CLOSED:
        return OrphanReason.CLOSED
    return OrphanReason.CRASHED


def _num_bytes(folder: Path) -> int:
    return sum(entry.stat().st_blocks * 512 for entry in folder.rglob("*") if entry.is_file())

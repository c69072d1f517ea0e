"""The pages of a log as they were where reading begins."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import ArenaParams, open_tables
from kvstrata.core.errors import LogError
from kvstrata.core.layout import CacheLayout
from kvstrata.core.words import PAGE_GENERATION, PAGE_SEQNO, PAGE_STATE, POOL_FIRST
from kvstrata.eventstore.log.directory import LogPaths
from kvstrata.eventstore.log.identity import Format
from kvstrata.eventstore.log.snapshot import Snapshot, read_snapshot

__all__ = ["pages_at_start"]

Columns = dict[str, npt.NDArray[np.int64]]


def pages_at_start(
    directory: Path, identity: Format, layout: CacheLayout, first_seqno: int
) -> tuple[Columns, int]:
    """Every page but the scratch pages, where the log begins, or at its oldest snapshot after.

    Args:
        directory: a log directory.
        identity: its identity.
        layout: its layout.
        first_seqno: the first event the log holds.

    Returns:
        ``group``, ``page``, ``state``, ``generation`` and ``seqno`` by name, int64[pages]; and the
        seqno of the first event to read on from.

    Raises:
        LogError: the log's beginning is gone, and no snapshot says how it was.
    """
    slots = ArenaParams(**identity.params).slots
    sizes = [slots[group.name] for group in layout.groups]
    group = np.repeat(np.arange(len(sizes), dtype=np.int64), [size - 1 for size in sizes])
    page = np.concatenate([np.arange(1, size, dtype=np.int64) for size in sizes])
    columns = {"group": group, "page": page}
    if first_seqno == 1:
        nothing = np.zeros(len(page), dtype=np.int64)
        return columns | {"state": nothing, "generation": nothing, "seqno": nothing}, 1
    snapshot = _oldest_snapshot(directory, identity, first_seqno - 1)
    tables = open_tables(snapshot.arena)
    rows = tables.pages[tables.pools[group, POOL_FIRST] + page]
    columns |= {
        "state": np.ascontiguousarray(rows[:, PAGE_STATE]),
        "generation": np.ascontiguousarray(rows[:, PAGE_GENERATION]),
        "seqno": np.ascontiguousarray(rows[:, PAGE_SEQNO]),
    }
    return columns, snapshot.seqno + 1


def _oldest_snapshot(directory: Path, identity: Format, at_least: int) -> Snapshot:
    paths = LogPaths(directory)
    for path in paths.snapshot_files():
        if int(path.stem) < at_least:
            continue
        try:
            found = read_snapshot(path, identity)
        except FileNotFoundError:
            continue  # the writer deleted it meanwhile, and has a newer one
        if isinstance(found, Snapshot):
            return found
    raise LogError(
        f"expected a snapshot at event {at_least} or later, since {directory} no longer holds "
        "what was before; found none that holds: look with kvstrata fsck"
    )

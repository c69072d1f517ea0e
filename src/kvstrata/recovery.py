"""Opening after a crash: which pages are kept, which are lost, and saying so in the log."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

import numpy as np

from kvstrata.core.arena import ArenaParams, open_tables
from kvstrata.core.compile import get_ready
from kvstrata.core.crash import end_incarnation
from kvstrata.core.errors import ConfigError
from kvstrata.core.events import EventType
from kvstrata.core.layout import CacheLayout
from kvstrata.core.quarantine import note
from kvstrata.core.replay import apply_events
from kvstrata.core.room import MORE
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    HOLDER_KIND,
    META_LAST_SEQNO,
    POOL_COUNTS,
    UNIT_INDEXED,
    UNIT_STATE,
    Arena,
)
from kvstrata.eventstore.log import RecoveryReport

from .caller import CoreCaller
from .storage import BadPage, Storage

__all__ = ["Recovery", "RecoveryLog", "open_pools", "recover"]

if TYPE_CHECKING:
    from kvstrata.kernels.pools import PoolSet

    Placement = PoolSet | Literal["private", "shared"] | None

# Whoever imports this is going to open a cache: what every opening runs is loaded by then.
get_ready(apply_events, end_incarnation, note)


@dataclass(frozen=True)
class Recovery:
    """What opening a directory found and kept.

    Attributes:
        log: what the log found.
        pages_kept: sealed pages whose bytes are still right.
        pages_lost: pages by fate: ``crashed`` (not sealed when the incarnation died),
            ``bytes_untrusted`` (their memory did not survive), ``checksum_mismatch``.
        sequences_ended: sequences that were running.
    """

    log: RecoveryReport
    pages_kept: int
    pages_lost: dict[str, int]
    sequences_ended: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


class RecoveryLog(Protocol):
    """What recovery needs of a log."""

    @property
    def recovery(self) -> RecoveryReport:
        """What the log found."""

    @property
    def incarnation(self) -> int:
        """Number of the life that begins."""

    def put_blob(self, value: Any) -> bytes:
        """Store a JSON value; its digest, 16 bytes."""

    def settle_recovery(self) -> None:
        """The recovery is in the log: believe the pools again."""


class _Manager(Protocol):
    _storage: Storage | None

    def quarantine(self, page: BadPage) -> None: ...


def open_pools(
    layout: CacheLayout,
    params: ArenaParams,
    placement: "Placement",
    directory: Path | None,
    bytes_trusted: bool,
) -> "tuple[PoolSet | None, bool]":
    """The pools a manager was asked for.

    Returns:
        The pools or None, and whether the pages the log knows still have their bytes. A manager
        without pools keeps them as metadata.
    """
    if placement is None:
        return None, bytes_trusted
    from kvstrata.kernels.pools import PoolSet  # torch, which tables alone do not need

    if isinstance(placement, PoolSet):
        return placement, False
    if placement == "private":
        return PoolSet.allocate(layout, params.slots), False
    if directory is None:
        raise ConfigError("pools='shared': expected a log directory, found none")
    if bytes_trusted:
        try:
            return PoolSet.attach(layout, params.slots, directory), True
        except ConfigError:
            pass  # gone, or of another size: come up without them
    return PoolSet.allocate(layout, params.slots, directory), False


def recover(
    call: CoreCaller,
    log: RecoveryLog,
    layout: CacheLayout,
    params: ArenaParams,
    manager: _Manager,
    bytes_trusted: bool,
    tiers: tuple[str, ...] = (),
) -> Recovery:
    """End the incarnation that died (or was closed) and begin a new one, all of it logged.

    Args:
        call: runs compiled calls.
        log: the log, started.
        layout: the layout.
        params: sizes of the arena.
        manager: holds the pools and quarantines pages.
        bytes_trusted: whether sealed pages still have their bytes.
        tiers: names of the tiers below the device, in order.

    Returns:
        What was kept and lost.
    """
    arena = call.arena
    opened_with = {"layout": layout.to_json(), "params": asdict(params), "tiers": list(tiers)}
    blob = log.put_blob(opened_with)
    opened = np.zeros(4, dtype=np.int64)
    opened[:2] = np.frombuffer(blob, dtype="<i8")
    opened[2] = log.incarnation
    is_new = int(arena[META_LAST_SEQNO]) == 0
    call.note(EventType.MANAGER_OPENED, opened)
    if is_new:
        log.settle_recovery()
        return Recovery(log.recovery, 0, {}, 0)
    before = _taken_pages(arena)
    sequences = int(np.count_nonzero(open_tables(arena).holders[1:, HOLDER_KIND]))
    begun = np.array([int(bytes_trusted), 0, 0, 0], dtype=np.int64)
    call.note(EventType.RECOVERY_BEGUN, begun)
    code = MORE
    while code == MORE:
        code = call.run(end_incarnation, arena, call.ring, bytes_trusted)
    after = _taken_pages(arena)
    bad = _quarantine_bad_pages(arena, manager)
    kept = _taken_pages(arena)["sealed"]
    lost = {
        "crashed": before["open"],
        "bytes_untrusted": before["sealed"] - after["sealed"],
        "checksum_mismatch": bad,
        "below_a_bad_page": after["sealed"] - kept - bad,
    }
    replayed, micros = log.recovery.events_replayed, int(log.recovery.seconds * 1e6)
    ended = np.array([kept, sum(lost.values()), replayed, micros], dtype=np.int64)
    call.note(EventType.RECOVERY_ENDED, ended)
    log.settle_recovery()
    return Recovery(log.recovery, kept, lost, sequences)


def _taken_pages(arena: Arena) -> dict[str, int]:
    counts = open_tables(arena).pools[:, POOL_COUNTS : POOL_COUNTS + len(PageState)].sum(axis=0)
    sealed, free = int(counts[PageState.SEALED]), int(counts[PageState.FREE])
    return {"sealed": sealed, "open": int(counts.sum()) - sealed - free}


def _quarantine_bad_pages(arena: Arena, manager: _Manager) -> int:
    """Checksum every sealed page whose bytes survived; the bad ones are withdrawn."""
    storage = manager._storage
    if storage is None:
        return 0
    t = open_tables(arena)
    blocks = np.flatnonzero(t.blocks.rows[: len(t.blocks.pages), UNIT_STATE] == UNIT_INDEXED)
    images = np.flatnonzero(t.images.rows[: len(t.images.pages), UNIT_STATE] == UNIT_INDEXED)
    bad = storage.bad_pages(blocks, images)
    for page in bad:
        manager.quarantine(page)
    return len(bad)

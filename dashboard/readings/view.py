"""One consistent look at a follower: what a scrape needs, copied under its lock, quickly."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvstrata.core.layout import CacheLayout
from kvstrata.core.words import (
    CHECKPOINT_TIERS,
    HOLDER_FREE,
    HOLDER_KIND,
    META_NUM_SEQUENCES,
    META_NUM_STORED,
    STORED_TIERS,
    TIERS_MASK,
    Arena,
)

if TYPE_CHECKING:
    from kvstrata.core.arena import Tables
    from kvstrata.eventstore.history.follower import Follower
    from kvstrata.eventstore.history.tally import NumericSample

    from .lag import IndexLag

__all__ = ["View", "take_view"]

_MAX_TIERS = 8
_DEVICE, _UNKNOWN = "device", "unknown"
"""What the label says of the pools, and where an event names no tier; no tier may look so."""


@dataclass(frozen=True)
class View:
    """What a follower knew at one moment.

    Attributes:
        layout: the cache's layout.
        meta: int64[META_WORDS], the arena's header.
        pools: int64[groups, POOL_WORDS].
        stored: int64[8, 2], blocks and checkpoints by tier below the device.
        sequences: running or draining.
        leases: held outside sequences.
        index_lag: int64[groups], see :class:`.lag.IndexLag`.
        counts: int64[64, groups + 1, 256], events by type, group and reason.
        totals: named sums of the tally.
        histograms: of the tally, by name.
        tier_failures: int64[9, 256], by tier and reason.
        numeric: samples by group and model layer.
        tier_names: of the tiers below the device, in order.
        in_flight: loads, their bytes, spills, and requests that wait.
        drifts_found: divergences of the tables that the follower found.
        digests: digests of the engine's tables that were equal to its own, and that were not.
    """

    layout: CacheLayout
    meta: Arena
    pools: Arena
    stored: Arena
    sequences: int
    leases: int
    index_lag: Arena
    counts: npt.NDArray[np.int64]
    totals: dict[str, int]
    histograms: dict[str, tuple[tuple[int, ...], float]]
    tier_failures: npt.NDArray[np.int64]
    numeric: dict[tuple[int, int], NumericSample]
    tier_names: tuple[str, ...]
    in_flight: dict[str, int]
    drifts_found: int
    digests: tuple[int, int]

    def pool_labels(self, group: int) -> tuple[str, str]:
        """Values of the labels pool and kind of one group."""
        spec = self.layout.groups[group]
        return spec.name, spec.kind.name.lower()

    def tier_name(self, tier: int) -> str:
        """Name of a tier by its number in events: 0 where they name none."""
        if tier == 0:
            return _UNKNOWN
        name = self.tier_names[tier - 1] if tier <= len(self.tier_names) else _UNKNOWN
        return f"tier{tier}" if name in (_DEVICE, _UNKNOWN) else name


def take_view(follower: Follower, index_lag: IndexLag) -> View:
    """Copy what a scrape needs.

    Args:
        follower: read under its lock; a few kilobytes are copied, no table is walked but those of
            holders and of stored objects.
        index_lag: remembers the last look at the indexes.
    """
    with follower.lock:
        tables, tally = follower.tables, follower.tally
        meta = tables.meta.copy()
        held = tables.holders[1:, HOLDER_KIND] != HOLDER_FREE
        sequences = int(meta[META_NUM_SEQUENCES])
        return View(
            layout=follower.layout,
            meta=meta,
            pools=tables.pools.copy(),
            stored=_count_stored(tables),
            sequences=int(np.count_nonzero(held[:sequences])),
            leases=int(np.count_nonzero(held[sequences:])),
            index_lag=index_lag.look(tables, tally.counts),
            counts=tally.counts.copy(),
            totals=dict(tally.totals),
            histograms={
                name: (tuple(histogram.counts.tolist()), histogram.sum)
                for name, histogram in tally.histograms.items()
            },
            tier_failures=tally.tier_failures.copy(),
            numeric={place: replace(sample) for place, sample in tally.numeric.items()},
            tier_names=tuple(follower.tier_names),
            in_flight=tally.in_flight,
            drifts_found=follower.drifts_found,
            digests=follower.digests,
        )


def _count_stored(tables: Tables) -> Arena:
    counts = np.zeros((_MAX_TIERS, 2), dtype=np.int64)
    if int(tables.meta[META_NUM_STORED]) > 1:
        masks = tables.stored[1:, STORED_TIERS]
        masks = masks[masks != 0]
        for tier in range(_MAX_TIERS):
            counts[tier, 0] = np.count_nonzero(masks & TIERS_MASK & (1 << tier))
            counts[tier, 1] = np.count_nonzero((masks >> CHECKPOINT_TIERS) & (1 << tier))
    return counts

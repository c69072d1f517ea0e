"""Counts for people and metrics, read off the tables."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from kvstrata.core.admission_terms import AdmissionStats
from kvstrata.core.arena import open_tables
from kvstrata.core.events import EventType
from kvstrata.core.layout import CacheLayout
from kvstrata.core.ring import RING_STALLS
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    HOLDER_FREE,
    HOLDER_KIND,
    META_COUNTS,
    META_FREE_BLOCKS,
    META_FREE_IMAGES,
    META_IDLE_BLOCKS,
    META_IDLE_IMAGES,
    META_INDEXED_BLOCKS,
    META_INDEXED_IMAGES,
    META_LAST_SEQNO,
    META_NUM_BLOCKS,
    META_NUM_IMAGES,
    META_NUM_SEQUENCES,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_FIRST,
    POOL_SLOTS,
    UNIT_REFS,
    Arena,
)

__all__ = ["PoolStatistics", "Statistics", "collect"]


@dataclass(frozen=True)
class PoolStatistics:
    """One group's pool.

    Attributes:
        group: name of the group.
        slots: pages, scratch included.
        pages: pages by state; ``sealed`` is split in ``sealed_idle`` and ``sealed_pinned``. They
            sum to ``slots - 1``.
    """

    group: str
    slots: int
    pages: dict[str, int]


@dataclass(frozen=True)
class Statistics:
    """A manager at one moment.

    Attributes:
        last_seqno: events so far.
        pools: one entry a group.
        blocks: block ids: total, free, idle (evictable), indexed.
        images: image ids, the same.
        sequences: running or draining.
        leases: held outside sequences.
        events: events so far by type.
        ring_stalls: how often a call had to wait for the log writer.
        validation_failures: by ``layer/reason/group``, the labels of the metric.
        completion_anomalies: late, duplicate and ghost completions.
        admission: who waits, what is promised and in recovery; None without a cap.
    """

    last_seqno: int
    pools: tuple[PoolStatistics, ...]
    blocks: dict[str, int]
    images: dict[str, int]
    sequences: int
    leases: int
    events: dict[str, int]
    ring_stalls: int
    validation_failures: dict[str, int]
    completion_anomalies: dict[str, int]
    admission: AdmissionStats | None

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

    def describe_images(self) -> str:
        """Images and sequences in words, for errors."""
        free = self.images["free"] + self.images["idle"]
        return f"{self.sequences} sequences running and {free} of {self.images['total']} images"


def collect(
    layout: CacheLayout,
    arena: Arena,
    ring: Arena,
    failures: Mapping[tuple[int, str, str], int],
    anomalies: Mapping[str, int],
    admission: AdmissionStats | None,
) -> Statistics:
    """Read the statistics of an arena."""
    t = open_tables(arena)
    meta = arena
    kinds = t.holders[1:, HOLDER_KIND] != HOLDER_FREE
    sequences = int(meta[META_NUM_SEQUENCES])

    def units(total: int, free: int, idle: int, indexed: int) -> dict[str, int]:
        return {
            "total": int(meta[total]),
            "free": int(meta[free]),
            "idle": int(meta[idle]),
            "indexed": int(meta[indexed]),
        }

    return Statistics(
        last_seqno=int(meta[META_LAST_SEQNO]),
        pools=tuple(
            _pool(layout, arena, number, group.name) for number, group in enumerate(layout.groups)
        ),
        blocks=units(META_NUM_BLOCKS, META_FREE_BLOCKS, META_IDLE_BLOCKS, META_INDEXED_BLOCKS),
        images=units(META_NUM_IMAGES, META_FREE_IMAGES, META_IDLE_IMAGES, META_INDEXED_IMAGES),
        sequences=int(np.count_nonzero(kinds[:sequences])),
        leases=int(np.count_nonzero(kinds[sequences:])),
        events={
            kind.name.lower(): int(meta[META_COUNTS + kind])
            for kind in EventType
            if meta[META_COUNTS + kind]
        },
        ring_stalls=int(ring[RING_STALLS]),
        validation_failures={
            f"{layer}/{reason.lower()}/{group}": count
            for (layer, reason, group), count in sorted(failures.items())
        },
        completion_anomalies=dict(anomalies),
        admission=admission,
    )


def _pool(layout: CacheLayout, arena: Arena, number: int, name: str) -> PoolStatistics:
    t = open_tables(arena)
    first, slots = int(t.pools[number, POOL_FIRST]), int(t.pools[number, POOL_SLOTS])
    pages = t.pages[first + 1 : first + slots]
    units = t.blocks if number < len(layout.history_groups) else t.images
    states = np.bincount(pages[:, PAGE_STATE], minlength=len(PageState))
    sealed = pages[:, PAGE_STATE] == PageState.SEALED
    pinned = int(np.count_nonzero(units.rows[pages[sealed, PAGE_UNIT], UNIT_REFS] > 0))
    counts = {
        state.name.lower(): int(states[state]) for state in PageState if state != PageState.SEALED
    }
    counts["sealed_pinned"] = pinned
    counts["sealed_idle"] = int(states[PageState.SEALED]) - pinned
    return PoolStatistics(name, slots, counts)

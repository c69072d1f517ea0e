"""Reads the metrics of :mod:`..metrics.pools`."""

from collections.abc import Iterator

import numpy as np

from kvstrata.core.events import EventType, Reason
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    META_BLOCK_BYTES,
    META_FREE_BLOCKS,
    META_FREE_IMAGES,
    META_IDLE_BLOCKS,
    META_IDLE_IMAGES,
    META_IMAGE_BYTES,
    META_INDEXED_BLOCKS,
    META_INDEXED_IMAGES,
    META_NUM_BLOCKS,
    META_NUM_IMAGES,
    POOL_COUNTS,
    POOL_SLOTS,
)

from ..metrics.labels import REASON_NAMES
from .sample import Distribution, Sample
from .view import View

__all__ = ["read_pools"]

_LOST_REASONS = (Reason.BYTES_UNTRUSTED, Reason.CRASHED)
_UNITS = (
    ("block", META_NUM_BLOCKS, META_FREE_BLOCKS, META_IDLE_BLOCKS, META_INDEXED_BLOCKS),
    ("checkpoint", META_NUM_IMAGES, META_FREE_IMAGES, META_IDLE_IMAGES, META_INDEXED_IMAGES),
)


def read_pools(view: View) -> Iterator[Sample | Distribution]:
    """Values of the metrics of pools, pages and units."""
    for group in range(len(view.layout.groups)):
        yield from _pool(view, group)
    yield from _units(view)
    yield from _tiers(view)
    yield Sample("kvcache_sequences", (), view.sequences)
    yield Sample("kvcache_leases", (), view.leases)
    age = "kvcache_eviction_age_seconds"
    yield Distribution(age, ("block",), *view.histograms["eviction_age"])
    yield Distribution(age, ("checkpoint",), *view.histograms["checkpoint_eviction_age"])
    yield Distribution("kvcache_reuse_gap_seconds", (), *view.histograms["reuse_gap"])


def _pool(view: View, group: int) -> Iterator[Sample]:
    labels, pool = view.pool_labels(group), view.pools[group]
    idle = int(view.meta[META_IDLE_BLOCKS if view.layout.groups[group].is_history else
                         META_IDLE_IMAGES])  # fmt: skip
    for state in PageState:
        count = int(pool[POOL_COUNTS + state])
        if state is PageState.SEALED:
            yield Sample("kvcache_pool_pages", (*labels, "sealed_idle"), idle)
            yield Sample("kvcache_pool_pages", (*labels, "sealed_pinned"), count - idle)
        else:
            yield Sample("kvcache_pool_pages", (*labels, state.name.lower()), count)
    yield Sample("kvcache_pool_capacity_pages", labels, int(pool[POOL_SLOTS]) - 1)
    yield Sample("kvcache_page_size_bytes", labels, view.layout.page_bytes(group))
    yield Sample("kvcache_index_lag_pages", labels, int(view.index_lag[group]))
    events = view.counts[:, group]
    yield Sample("kvcache_sealed_pages_total", labels, int(events[EventType.PAGE_SEALED].sum()))
    evicted = int(events[EventType.PAGE_FREED, Reason.EVICTED])
    yield Sample("kvcache_evicted_pages_total", labels, evicted)
    yield Sample("kvcache_dirtied_pages_total", labels, int(events[EventType.PAGE_DIRTIED].sum()))
    for reason in _LOST_REASONS:
        lost = int(events[EventType.PAGE_LOST, reason])
        yield Sample("kvcache_lost_pages_total", (*labels, REASON_NAMES[reason]), lost)
    bad = events[EventType.PAGE_QUARANTINED]
    for code in sorted({int(Reason.CHECKSUM_MISMATCH), *np.flatnonzero(bad).tolist()}):
        if code in REASON_NAMES:
            why = (*labels, REASON_NAMES[code])
            yield Sample("kvcache_quarantined_pages_total", why, int(bad[code]))


def _units(view: View) -> Iterator[Sample]:
    for unit, total_at, free_at, idle_at, indexed_at in _UNITS:
        total, free, idle = (int(view.meta[at]) for at in (total_at, free_at, idle_at))
        yield Sample("kvcache_units", (unit, "free"), free)
        yield Sample("kvcache_units", (unit, "held"), total - free - idle)
        yield Sample("kvcache_units", (unit, "idle"), idle)
        yield Sample("kvcache_indexed_units", (unit,), int(view.meta[indexed_at]))


def _tiers(view: View) -> Iterator[Sample]:
    history = len(view.layout.history_groups)
    taken = view.pools[:, POOL_SLOTS] - 1 - view.pools[:, POOL_COUNTS + PageState.FREE]
    sizes = [view.layout.page_bytes(group) for group in range(len(taken))]
    for unit, groups in (("block", range(history)), ("checkpoint", range(history, len(sizes)))):
        num_bytes = sum(int(taken[group]) * sizes[group] for group in groups)
        yield Sample("kvcache_tier_bytes", ("device", unit), num_bytes)
    block_bytes, image_bytes = int(view.meta[META_BLOCK_BYTES]), int(view.meta[META_IMAGE_BYTES])
    for tier in range(len(view.stored)):
        blocks, checkpoints = (int(count) for count in view.stored[tier])
        if tier < len(view.tier_names) or blocks or checkpoints:
            name = view.tier_name(tier + 1)
            yield Sample("kvcache_tier_objects", (name, "block"), blocks)
            yield Sample("kvcache_tier_objects", (name, "checkpoint"), checkpoints)
            yield Sample("kvcache_tier_bytes", (name, "block"), blocks * block_bytes)
            yield Sample("kvcache_tier_bytes", (name, "checkpoint"), checkpoints * image_bytes)

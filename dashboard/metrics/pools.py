"""Metrics of pools, pages and units: what is where, and how it comes and goes."""

from typing import Final

from kvstrata.eventstore.history.histogram import AGE_BOUNDS_SECONDS

from .metric import Metric

__all__ = ["POOL_METRICS"]

_POOL: Final = ("pool", "kind")

POOL_METRICS: Final = (
    Metric(
        "kvcache_pool_pages",
        "gauge",
        "pages",
        (*_POOL, "state"),
        "Pages of a pool by state; they sum to its capacity",
        "tables",
    ),
    Metric(
        "kvcache_pool_capacity_pages",
        "gauge",
        "pages",
        _POOL,
        "Pages of a pool, its scratch page not counted",
        "tables",
    ),
    Metric("kvcache_page_size_bytes", "gauge", "bytes", _POOL, "Bytes of one page", "tables"),
    Metric(
        "kvcache_index_lag_pages",
        "gauge",
        "pages",
        _POOL,
        "Sealed pages of an index that are no hit any more, since they were written after their "
        "sealing or made for another compression mapping; looked at every few seconds",
        "tables",
    ),
    Metric(
        "kvcache_tier_bytes",
        "gauge",
        "bytes",
        ("tier", "unit"),
        "Bytes in a tier: pages that are not free, or what stored objects hold without their "
        "headers",
        "tables",
    ),
    Metric(
        "kvcache_tier_objects",
        "gauge",
        "1",
        ("tier", "unit"),
        "Objects known to lie in a tier below the device",
        "tables",
    ),
    Metric(
        "kvcache_units",
        "gauge",
        "1",
        ("unit", "use"),
        "Blocks and state images: free, idle (findable and evictable) or held; a held image may be "
        "a sequence's own",
        "tables",
    ),
    Metric(
        "kvcache_indexed_units",
        "gauge",
        "1",
        ("unit",),
        "Blocks and checkpoints that a request can find",
        "tables",
    ),
    Metric("kvcache_sequences", "gauge", "1", (), "Sequences running or draining", "tables"),
    Metric("kvcache_leases", "gauge", "1", (), "Leases held outside sequences", "tables"),
    Metric(
        "kvcache_sealed_pages_total",
        "counter",
        "pages",
        _POOL,
        "Pages sealed",
        "event log",
    ),
    Metric(
        "kvcache_evicted_pages_total",
        "counter",
        "pages",
        _POOL,
        "Pages freed to make room",
        "event log",
    ),
    Metric(
        "kvcache_lost_pages_total",
        "counter",
        "pages",
        (*_POOL, "reason"),
        "Pages that a new incarnation found without trustworthy bytes",
        "event log",
    ),
    Metric(
        "kvcache_quarantined_pages_total",
        "counter",
        "pages",
        (*_POOL, "reason"),
        "Pages withdrawn because they failed validation",
        "event log",
    ),
    Metric(
        "kvcache_dirtied_pages_total",
        "counter",
        "pages",
        _POOL,
        "Pages written behind their seal",
        "event log",
    ),
    Metric(
        "kvcache_eviction_age_seconds",
        "histogram",
        "seconds",
        ("unit",),
        "Time from the last use of a block or checkpoint until it was evicted",
        "event log",
        AGE_BOUNDS_SECONDS,
    ),
    Metric(
        "kvcache_reuse_gap_seconds",
        "histogram",
        "seconds",
        (),
        "Time from the last use of a prefix until it was hit again",
        "event log",
        AGE_BOUNDS_SECONDS,
    ),
)

"""Pools and morphology: pages by state, how old they get, what comes and goes."""

from grafana_foundation_sdk.builders import heatmap, statetimeline, timeseries
from grafana_foundation_sdk.models.dashboard import Dashboard

from .board import Row, make_dashboard
from .look import BAD, GOOD, STATE_COLOURS, WARN, query, ranges
from .shapes import heat, lines, stacked, states

__all__ = ["pools"]

UID = "kvstrata-pools"
_POOL = 'instance=~"$instance",pool=~"$pool"'


def pools() -> Dashboard:
    """The dashboard."""
    return make_dashboard(
        UID,
        "kvstrata / Pools and morphology",
        "What the pages of each pool are doing, how old they get, and what makes room.",
        [
            Row("Room", [room_over_time(), pages_by_state()]),
            Row("Age", [age_at_eviction(), reuse_gap()]),
            Row("Coming and going", [sealed(), evicted(), lost(), units()]),
            Row("Holders", [bytes_by_pool(), findable(), holders()]),
        ],
        with_pool=True,
    )


def room_over_time() -> statetimeline.Panel:
    return states(
        "Room of each pool",
        "Share of a pool that is free or evictable, as a band: room above 20 %, tight above 2 %, "
        "exhausted below.",
        [
            query(
                f"min by (pool) (instance_pool:kvcache_available_pages:ratio{{{_POOL}}})",
                "{{pool}}",
            )
        ],
        ranges(
            (None, 0.02, "exhausted", BAD), (0.02, 0.2, "tight", WARN), (0.2, None, "room", GOOD)
        ),
        steps=((None, BAD), (0.02, WARN), (0.2, GOOD)),
        unit="percentunit",
        alerts=("KVCachePoolExhausted",),
    )


def pages_by_state() -> timeseries.Panel:
    return stacked(
        "Pages by state",
        "All pages of the chosen pools. Sealed and idle ones are evictable, pinned ones are read; "
        "writing, open and reserved belong to running requests.",
        [query(f"sum by (state) (kvcache_pool_pages{{{_POOL}}})", "{{state}}")],
        colours=STATE_COLOURS,
        alerts=("KVCachePoolExhausted",),
    ).span(12)


def _ages(metric: str, more: str = "") -> str:
    buckets = f'kvcache_{metric}_seconds_bucket{{instance=~"$instance"{more}}}'
    return f"sum by (le) (increase({buckets}[$__rate_interval]))"


def age_at_eviction() -> heatmap.Panel:
    return heat(
        "Age at eviction",
        "How long ago blocks had been used when they were evicted. Dark rows at the bottom: they "
        "go before they can be reused, there is too little room.",
        _ages("eviction_age", ',unit="block"'),
        "s",
        no_value="nothing was evicted",
    )


def reuse_gap() -> heatmap.Panel:
    return heat(
        "Gap until reuse",
        "Time from the last use of a prefix until it was hit again. Compare with the age at "
        "eviction: what is reused later than blocks live is lost.",
        _ages("reuse_gap"),
        "s",
        no_value="nothing was reused",
    )


def _rate(metric: str) -> str:
    return f"sum by (pool) (rate(kvcache_{metric}_pages_total{{{_POOL}}}[$__rate_interval]))"


def sealed() -> timeseries.Panel:
    return lines(
        "Pages sealed",
        "Pages completed, a second.",
        [query(_rate("sealed"), "{{pool}}")],
        "ops",
    ).span(6)


def evicted() -> timeseries.Panel:
    return lines(
        "Pages evicted",
        "Pages freed to make room, a second.",
        [query(_rate("evicted"), "{{pool}}")],
        "ops",
    ).span(6)


def lost() -> timeseries.Panel:
    return lines(
        "Pages lost in crashes",
        "Pages that recoveries found without trustworthy bytes, so far, by reason.",
        [query(f"sum by (reason) (kvcache_lost_pages_total{{{_POOL}}})", "{{reason}}")],
    ).span(6)


def units() -> timeseries.Panel:
    return stacked(
        "Blocks by use",
        "Blocks free, held by somebody, or idle: findable and evictable.",
        [query('sum by (use) (kvcache_units{instance=~"$instance",unit="block"})', "{{use}}")],
        colours={
            "free": STATE_COLOURS["free"],
            "held": STATE_COLOURS["sealed_pinned"],
            "idle": STATE_COLOURS["sealed_idle"],
        },
    ).span(6)


def bytes_by_pool() -> timeseries.Panel:
    return stacked(
        "Bytes by pool",
        "Bytes of the pages that are not free.",
        [
            query(
                f'sum by (pool) (kvcache_pool_pages{{{_POOL},state!="free"}} '
                "* on (job, instance, pool) group_left () kvcache_page_size_bytes)",
                "{{pool}}",
            )
        ],
        "bytes",
    )


def findable() -> timeseries.Panel:
    return lines(
        "Findable",
        "Blocks and checkpoints that a request can hit.",
        [query('sum by (unit) (kvcache_indexed_units{instance=~"$instance"})', "{{unit}}")],
    )


def holders() -> timeseries.Panel:
    return lines(
        "Sequences and leases",
        "Who holds pages: running requests, and leases outside them. Leases that only rise leak.",
        [
            query('sum(kvcache_sequences{instance=~"$instance"})', "sequences"),
            query('sum(kvcache_leases{instance=~"$instance"})', "leases"),
        ],
    )

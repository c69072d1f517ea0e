"""Tiers and admission: what lies below the device, how it moves, and who waits."""

from grafana_foundation_sdk.builders import heatmap, stat, timeseries
from grafana_foundation_sdk.models.dashboard import Dashboard

from .board import Row, make_dashboard
from .look import BAD, NEUTRAL, query
from .shapes import heat, lines, number, stacked

__all__ = ["tiers"]

UID = "kvstrata-tiers"
_ON = '{instance=~"$instance"}'
_NO_TIERS = "no tier below the device"


def tiers() -> Dashboard:
    """The dashboard."""
    return make_dashboard(
        UID,
        "kvstrata / Tiers and admission",
        "What lies in each tier, loads and spills, and what admission answers.",
        [
            Row("What lies where", [bytes_by_tier(), objects_by_tier(), hits_by_source()]),
            Row(
                "Loads and spills",
                [transfer_bytes(), load_time(), spill_time(), failures(), ended(), in_flight()],
            ),
            Row("Admission", [waiting(), decisions(), denied(), wait_time()]),
            Row("What the planner reckons", [compute_rate(), copy_rate(), load_rate(), commands()]),
        ],
    )


def bytes_by_tier() -> timeseries.Panel:
    return stacked(
        "Bytes by tier",
        "Pages that are not free, and what stored objects hold without their headers.",
        [query(f"sum by (tier) (kvcache_tier_bytes{_ON})", "{{tier}}")],
        "bytes",
    )


def objects_by_tier() -> timeseries.Panel:
    return lines(
        "Objects by tier",
        "Stored blocks and checkpoints that the engine knows of.",
        [query(f"sum by (tier, unit) (kvcache_tier_objects{_ON})", "{{tier}}, {{unit}}s")],
        no_value=_NO_TIERS,
    )


def hits_by_source() -> timeseries.Panel:
    return lines(
        "Hits by source",
        "Share of the tokens looked up in a source that were found there. Tiers are asked only for "
        "what the device lacked.",
        [
            query(
                f"sum by (source) (rate(kvcache_hit_tokens_total{_ON}[$__rate_interval])) "
                "/ (sum by (source) "
                f"(rate(kvcache_lookup_tokens_total{_ON}[$__rate_interval])) > 0)",
                "{{source}}",
            )
        ],
        "percentunit",
        no_value="no requests",
    ).max(1)


def transfer_bytes() -> timeseries.Panel:
    return lines(
        "Bytes moved",
        "Bytes read by loads and written by spills, a second.",
        [
            query(f"sum(rate(kvcache_load_bytes_total{_ON}[$__rate_interval]))", "loaded"),
            query(f"sum(rate(kvcache_spill_bytes_total{_ON}[$__rate_interval]))", "spilled"),
        ],
        "Bps",
    )


def _buckets(metric: str) -> str:
    buckets = f"kvcache_{metric}_seconds_bucket{_ON}"
    return f"sum by (le) (increase({buckets}[$__rate_interval]))"


def load_time() -> heatmap.Panel:
    return heat(
        "Time of loads",
        "How long loads took. The objective is 2 s for 99 in a hundred.",
        _buckets("load_duration"),
        "s",
        no_value="nothing was loaded",
        alerts=("KVCacheRecoveryTimeBurnFast", "KVCacheRecoveryTimeBurnSlow"),
    ).span(8)


def spill_time() -> heatmap.Panel:
    return heat(
        "Time of spills",
        "How long spills took.",
        _buckets("spill_duration"),
        "s",
        no_value="nothing was spilled",
    ).span(8)


def failures() -> timeseries.Panel:
    return lines(
        "Failures of tiers",
        "Objects that were not what they should be, and loads and spills that a tier failed, a "
        "minute.",
        [
            query(
                "sum by (tier, reason) "
                f"(rate(kvcache_tier_failures_total{_ON}[$__rate_interval])) * 60 > 0",
                "{{tier}}: {{reason}}",
            )
        ],
        no_value="none failed",
        alerts=("KVCacheTierFailing",),
    )


def ended() -> timeseries.Panel:
    return lines(
        "Loads and spills by how they ended",
        "None: all well. The others are explained in docs/events.md.",
        [
            query(
                f"sum by (reason) (rate(kvcache_loads_total{_ON}[$__rate_interval])) * 60",
                "loads: {{reason}}",
            ),
            query(
                f"sum by (reason) (rate(kvcache_spills_total{_ON}[$__rate_interval])) * 60",
                "spills: {{reason}}",
            ),
        ],
    )


def in_flight() -> timeseries.Panel:
    return lines(
        "In flight",
        "Loads (admission calls them recoveries) and spills that run now.",
        [
            query(f"sum(kvcache_recoveries_in_flight{_ON})", "recoveries"),
            query(f"sum(kvcache_spills_in_flight{_ON})", "spills"),
        ],
    )


def waiting() -> timeseries.Panel:
    return lines(
        "Requests that wait",
        "As of the last answer of admission.",
        [query(f"kvcache_admission_waiting_requests{_ON}", "{{instance}}")],
        alerts=("KVCacheAdmissionStarved",),
    ).span(6)


def decisions() -> timeseries.Panel:
    return lines(
        "Answers of admission",
        "Answers a minute, to loads and to requests that did not begin at once.",
        [
            query(
                "sum by (decision) "
                f"(rate(kvcache_admission_decisions_total{_ON}[$__rate_interval])) * 60",
                "{{decision}}",
            )
        ],
        colours={"denied": BAD, "deferred": NEUTRAL},
    ).span(6)


def denied() -> timeseries.Panel:
    return lines(
        "Why not",
        "Requests deferred or denied, a minute, by the limit they met.",
        [
            query(
                "sum by (decision, reason) (rate(kvcache_admission_decisions_total"
                '{instance=~"$instance",decision=~"deferred|denied"}[$__rate_interval])) * 60 > 0',
                "{{decision}}: {{reason}}",
            )
        ],
        no_value="nobody was turned away",
        alerts=("KVCacheAdmissionDenying",),
    ).span(6)


def wait_time() -> heatmap.Panel:
    return heat(
        "Time waited",
        "How long requests had waited that were then granted.",
        _buckets("admission_wait"),
        "s",
        no_value="nobody waited",
    ).span(6)


def compute_rate() -> stat.Panel:
    return number(
        "Compute",
        "Prompt tokens that the engine computes in a second, as observed.",
        f"max(kvcache_planner_compute_tokens_per_second{_ON})",
    ).span(6)


def copy_rate() -> stat.Panel:
    return number(
        "Copy",
        "Bytes of pages copied in a second, as observed.",
        f"max(kvcache_planner_copy_bytes_per_second{_ON})",
        unit="Bps",
    ).span(6)


def load_rate() -> stat.Panel:
    return number(
        "Load",
        "Bytes of objects loaded in a second, as observed.",
        f"max(kvcache_planner_load_bytes_per_second{_ON})",
        unit="Bps",
    ).span(6)


def commands() -> stat.Panel:
    return number(
        "Operator commands",
        "Commands that the engine ended within the last day, whatever the outcome.",
        f"sum(increase(kvcache_commands_total{_ON}[1d]))",
    ).span(6)

"""Overview: one glance tells whether the cache is well."""

from grafana_foundation_sdk.builders import bargauge, stat, table, timeseries
from grafana_foundation_sdk.models.dashboard import Dashboard, DynamicConfigValue

from ..alerts import DEFAULT_RUNBOOKS_URL
from .board import Row, make_dashboard
from .look import BAD, GOOD, NEUTRAL, WARN, mappings, query, ranges
from .shapes import bars, lines, number, rows, stacked

__all__ = ["overview"]

UID = "kvstrata-overview"


def overview() -> Dashboard:
    """The dashboard."""
    return make_dashboard(
        UID,
        "kvstrata / Overview",
        "Is the cache well? The first row answers; the others say what requests see and where room "
        "is short.",
        [
            Row(
                "Is it well?",
                [
                    critical_alerts(),
                    warnings(),
                    engine(),
                    log(),
                    follower_lag(),
                    drift_found(),
                ],
            ),
            Row(
                "What requests see",
                [tokens_by_source(), hit_ratio(), validation_failures()],
            ),
            Row("Room and waiting", [available_pages(), admission(), durable_lag()]),
            Row("What fires", [firing_alerts()]),
        ],
    )


def critical_alerts() -> stat.Panel:
    return number(
        "Critical alerts",
        "Critical alerts that fire now. Each has a runbook; the table below links to it.",
        'count(ALERTS{alertname=~"KVCache.*",alertstate="firing",severity="critical"}) '
        "or vector(0)",
        steps=((None, GOOD), (1, BAD)),
        no_value="no answer",
    )


def warnings() -> stat.Panel:
    return number(
        "Warnings",
        "Alerts of severity warning that fire now.",
        'count(ALERTS{alertname=~"KVCache.*",alertstate="firing",severity="warning"}) or vector(0)',
        steps=((None, GOOD), (1, WARN)),
        no_value="no answer",
    )


def engine() -> stat.Panel:
    return number(
        "Engine",
        "Whether the process that writes the log is alive. Closed: it ended in order.",
        'min((2 * kvcache_engine_up{instance=~"$instance"} '
        '+ kvcache_log_closed{instance=~"$instance"}) '
        'or 2 * kvcache_engine_up{instance=~"$instance"})',
        words=mappings({"2": ("alive", GOOD), "1": ("closed", NEUTRAL), "0": ("gone", BAD)}),
        no_value="no exporter",
        alerts=("KVCacheEngineAbsent", "KVCacheEngineCrashLoop"),
    )


def log() -> stat.Panel:
    return number(
        "Event log",
        "What the status page says of the log. Poisoned and unlogged: a restart will be cold.",
        'max(4 * kvcache_log_poisoned{instance=~"$instance"} '
        '+ 2 * kvcache_log_unlogged{instance=~"$instance"} '
        '+ kvcache_log_stalled{instance=~"$instance"})',
        words=ranges(
            (0, 0, "well", GOOD),
            (1, 1, "stalled", WARN),
            (2, 3, "unlogged", BAD),
            (4, 7, "poisoned", BAD),
        ),
        no_value="no ring",
        alerts=("KVCacheLogPoisoned", "KVCacheLogUnlogged", "KVCacheLogStalled"),
    )


def follower_lag() -> stat.Panel:
    return number(
        "Follower lag",
        "For how long there have been durable events that are not shown yet. All else here is so "
        "old.",
        'max(kvcache_follower_lag_seconds{instance=~"$instance"})',
        unit="s",
        steps=((None, GOOD), (5, WARN), (30, BAD)),
        no_value="no follower",
        alerts=("KVCacheFollowerLagging", "KVCacheFollowerFailed"),
    )


def drift_found() -> stat.Panel:
    return number(
        "Drift in the last hour",
        "Differences found between what must be equal: tables and log, bytes and checksums, stored "
        "and computed values. Anything but 0 is a fault.",
        'sum(increase(kvcache_drift_total{instance=~"$instance"}[1h]))',
        steps=((None, GOOD), (0.5, BAD)),
        no_value="no follower",
        alerts=("KVCacheProjectionDiverged", "KVCacheByteDrift", "KVCacheNumericDrift"),
    ).decimals(0)


def tokens_by_source() -> timeseries.Panel:
    return stacked(
        "Prompt tokens by source",
        "Where prompt tokens came from, a second. The areas sum to all prompt tokens; computed is "
        "what the cache did not save.",
        [
            query(
                "sum by (source) "
                '(rate(kvcache_source_tokens_total{instance=~"$instance"}[$__rate_interval]))',
                "{{source}}",
            )
        ],
        colours={
            "computed": "#7a8794",
            "device": "#2f8f5b",
            "suspended": "#b7a0e0",
            "tier": "#4a90d9",
        },
        no_value="no requests yet",
    )


def hit_ratio() -> timeseries.Panel:
    return lines(
        "Hit ratio",
        "Share of the prompt tokens looked up that were found, on the device or in a tier. What a "
        "request had computed itself before it was suspended is no hit.",
        [query('instance:kvcache_hit_tokens:ratio_rate5m{instance=~"$instance"}', "{{instance}}")],
        unit="percentunit",
        no_value="no requests yet",
        alerts=("KVCacheHitRateCollapsed",),
    ).max(1)


def validation_failures() -> timeseries.Panel:
    return lines(
        "Validation failures",
        "Pages or groups that failed validation, a second, by reason. Each costs a request its "
        "hit; no answer is wrong by it.",
        [
            query(
                "sum by (reason) "
                '(rate(kvcache_validation_failures_total{instance=~"$instance"}'
                "[$__rate_interval])) > 0",
                "{{reason}}",
            )
        ],
        unit="ops",
        no_value="none failed",
        alerts=("KVCacheValidationBurnFast", "KVCacheByteDrift"),
    )


def available_pages() -> bargauge.Panel:
    return bars(
        "Pages free or evictable",
        "Share of each pool that new requests can have. Below 2 % requests wait.",
        [
            query(
                "min by (pool) "
                '(instance_pool:kvcache_available_pages:ratio{instance=~"$instance"})',
                "{{pool}}",
                instant=True,
            )
        ],
        "percentunit",
        ((None, BAD), (0.02, WARN), (0.2, GOOD)),
        alerts=("KVCachePoolExhausted",),
    )


def admission() -> timeseries.Panel:
    return lines(
        "Admission",
        "Requests that wait, and how many are put off or turned away a minute.",
        [
            query('sum(kvcache_admission_waiting_requests{instance=~"$instance"})', "waiting"),
            query(
                "sum by (decision) (rate(kvcache_admission_decisions_total"
                '{instance=~"$instance",decision=~"deferred|denied"}[$__rate_interval])) * 60',
                "{{decision}} a minute",
            ),
        ],
        colours={"deferred a minute": WARN, "denied a minute": BAD, "waiting": NEUTRAL},
        no_value="nobody waited",
        alerts=("KVCacheAdmissionStarved", "KVCacheAdmissionDenying"),
    )


def durable_lag() -> timeseries.Panel:
    return lines(
        "Events not durable yet",
        "Events in the ring that the writer has not written, and events that a power loss would "
        "take back. Both stay near 0 while the disk keeps up.",
        [
            query('sum(kvcache_log_ring_events{instance=~"$instance"})', "in the ring"),
            query('sum(kvcache_log_durable_lag_events{instance=~"$instance"})', "not durable"),
        ],
        no_value="no ring",
        alerts=("KVCacheLogRingFilling",),
    )


def firing_alerts() -> table.Panel:
    panel = rows(
        "Alerts that fire",
        "Every alert of the cache that fires now; its name leads to its runbook.",
        'ALERTS{alertname=~"KVCache.*",alertstate="firing"}',
        {
            "severity": "Severity",
            "alertname": "Alert",
            "instance": "Instance",
            "pool": "Pool",
            "tier": "Tier",
        },
        no_value="nothing fires",
    )
    link = {
        "title": "Runbook",
        "url": f"{DEFAULT_RUNBOOKS_URL}/${{__value.raw}}",
        "targetBlank": True,
    }
    linked = panel.override_by_name("Alert", [DynamicConfigValue(id_val="links", value=[link])])
    return linked.height(6).span(24)

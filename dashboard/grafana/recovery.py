"""Recovery and log: lives of the engine, what crashes cost, and how the log keeps up."""

from grafana_foundation_sdk.builders import stat, statetimeline, table, timeseries
from grafana_foundation_sdk.models.dashboard import Dashboard

from .board import Row, make_dashboard
from .look import BAD, GOOD, NEUTRAL, WARN, mappings, query
from .shapes import lines, number, rows, stacked, states

__all__ = ["recovery"]

UID = "kvstrata-recovery"
_ON = '{instance=~"$instance"}'


def recovery() -> Dashboard:
    """The dashboard."""
    return make_dashboard(
        UID,
        "kvstrata / Recovery and log",
        "Lives and crashes of the engine, what its recoveries cost, and whether the log and its "
        "follower keep up.",
        [
            Row(
                "Lives",
                [
                    engine_over_time(),
                    *(panel.height(8) for panel in (crashes(), starts(), pages_kept())),
                    recovery_time(),
                    replayed(),
                ],
            ),
            Row("Log", [ring_depth(), durable_lag(), heartbeat(), stalls(), syncs(), events()]),
            Row("Follower", [lag_events(), lag_seconds(), applied()]),
            Row("What runs", [builds(), layouts()]),
        ],
    )


def engine_over_time() -> statetimeline.Panel:
    return states(
        "Engine",
        "Whether the process that writes the log was alive.",
        [query(f"max by (instance) (kvcache_engine_up{_ON})", "{{instance}}")],
        mappings({"1": ("alive", GOOD), "0": ("not running", BAD)}),
        steps=((None, BAD), (1, GOOD)),
        no_value="no exporter",
        alerts=("KVCacheEngineAbsent",),
    )


def crashes() -> stat.Panel:
    return number(
        "Crashes",
        "Starts that found the engine before had died, since the log began.",
        f"sum(kvcache_engine_crashes_total{_ON})",
        steps=((None, GOOD), (1, WARN)),
        alerts=("KVCacheEngineCrashLoop",),
    )


def starts() -> stat.Panel:
    return number(
        "Starts",
        "Times that an engine opened the log.",
        f"sum(kvcache_engine_starts_total{_ON})",
    )


def pages_kept() -> stat.Panel:
    return number(
        "Pages kept in crashes",
        "Share of the pages, over all recoveries, that were still good.",
        f'sum(kvcache_crash_pages_total{{instance=~"$instance",outcome="kept"}}) '
        f"/ (sum(kvcache_crash_pages_total{_ON}) > 0)",
        unit="percentunit",
        no_value="no recovery yet",
    )


def recovery_time() -> timeseries.Panel:
    return lines(
        "Recovery time",
        "Mean time of the recoveries within half an hour, replay not included.",
        [
            query(
                f"increase(kvcache_recovery_duration_seconds_sum{_ON}[30m]) "
                f"/ (increase(kvcache_recovery_duration_seconds_count{_ON}[30m]) > 0)",
                "{{instance}}",
            )
        ],
        "s",
        limit=((None, GOOD), (30, BAD)),
        no_value="no recovery",
        alerts=("KVCacheCrashRecoverySlow",),
    ).span(12)


def ring_depth() -> timeseries.Panel:
    return lines(
        "Ring depth",
        "Share of the ring that waits for the writer. When it is full, calls wait.",
        [
            query(
                f"kvcache_log_ring_events{_ON} / kvcache_log_ring_capacity_events{_ON}",
                "{{instance}}",
            )
        ],
        "percentunit",
        limit=((None, GOOD), (0.8, BAD)),
        no_value="no ring",
        alerts=("KVCacheLogRingFilling",),
    )


def durable_lag() -> timeseries.Panel:
    return lines(
        "Durable lag",
        "Events that a power loss would take back.",
        [query(f"kvcache_log_durable_lag_events{_ON}", "{{instance}}")],
        no_value="no ring",
    )


def heartbeat() -> timeseries.Panel:
    return lines(
        "Writer's silence",
        "Time since the log writer's last sign of life.",
        [query(f"kvcache_log_heartbeat_age_seconds{_ON}", "{{instance}}")],
        "s",
        no_value="no ring",
        alerts=("KVCacheLogStalled",),
    )


def stalls() -> timeseries.Panel:
    return lines(
        "Waits for the ring",
        "Calls of the engine that had to wait for room in the ring, a second.",
        [query(f"rate(kvcache_log_stalls_total{_ON}[$__rate_interval])", "{{instance}}")],
        "ops",
        no_value="no ring",
        alerts=("KVCacheLogRingFilling",),
    )


def syncs() -> timeseries.Panel:
    return lines(
        "Syncs",
        "Syncs of the log to its disk, a second.",
        [query(f"rate(kvcache_log_syncs_total{_ON}[$__rate_interval])", "{{instance}}")],
        "ops",
        no_value="no ring",
    )


def events() -> timeseries.Panel:
    return stacked(
        "Events by type",
        "Events applied by the follower, a second; types that came not at all are left out.",
        [
            query(
                f"sum by (type) (rate(kvcache_events_total{_ON}[$__rate_interval])) > 0",
                "{{type}}",
            )
        ],
        "ops",
        no_value="no events",
    )


def lag_events() -> timeseries.Panel:
    return lines(
        "Follower lag, events",
        "Durable events that are not shown yet, and events that never will be: they were pruned "
        "away before the follower read them.",
        [
            query(f"kvcache_follower_lag_events{_ON}", "{{instance}}"),
            query(f"kvcache_follower_missed_events_total{_ON}", "{{instance}} missed"),
        ],
        no_value="no follower",
        alerts=("KVCacheFollowerLagging",),
    )


def lag_seconds() -> timeseries.Panel:
    return lines(
        "Follower lag, seconds",
        "For how long there have been events that are not shown yet.",
        [query(f"kvcache_follower_lag_seconds{_ON}", "{{instance}}")],
        "s",
        limit=((None, GOOD), (30, BAD)),
        no_value="no follower",
        alerts=("KVCacheFollowerLagging", "KVCacheFollowerFailed"),
    )


def applied() -> timeseries.Panel:
    return lines(
        "Events applied",
        "Events that the follower applied, a second.",
        [
            query(
                f"rate(kvcache_follower_applied_events_total{_ON}[$__rate_interval])",
                "{{instance}}",
            )
        ],
        "ops",
        no_value="no follower",
    )


def replayed() -> timeseries.Panel:
    return lines(
        "Replay at start",
        "Events that engines replayed, and how long it took, over all starts.",
        [
            query(f"sum(kvcache_replayed_events_total{_ON})", "events"),
            query(f"sum(kvcache_replay_seconds_total{_ON})", "seconds"),
        ],
        colours={"events": NEUTRAL},
    ).span(12)


def builds() -> table.Panel:
    return rows(
        "Versions",
        "Which kvstrata serves these metrics, and which event schema it reads.",
        f"kvcache_build_info{_ON}",
        {"instance": "Instance", "version": "Version", "schema": "Event schema"},
    ).height(5)


def layouts() -> table.Panel:
    return rows(
        "Layouts",
        "The cache layout of each instance.",
        f"kvcache_layout_info{_ON}",
        {
            "instance": "Instance",
            "layout": "Layout",
            "block_tokens": "Tokens a block",
            "digest": "Digest",
        },
    ).height(5)

"""For each alert a history in which it must fire, and one in which it must not."""

from __future__ import annotations

from dataclasses import dataclass, field

TARGET = 'job="kvstrata",instance="a"'


def series(name: str, labels: str = "", target: str = TARGET) -> str:
    """A series of the one target that the histories are about."""
    return f"{name}{{{','.join(part for part in (target, labels) if part)}}}"


@dataclass(frozen=True)
class Case:
    """Two histories of one alert; values are in promtool's notation, a minute apart.

    Attributes:
        fires: series by which it fires at ``at``.
        quiet: series by which it is neither firing at ``quiet_at``.
        at: when it must fire.
        quiet_at: when it must not; ``at`` where empty.
        count: how many of it fire.
    """

    fires: dict[str, str]
    quiet: dict[str, str]
    at: str = "30m"
    quiet_at: str = ""
    count: int = field(default=1)


REQUESTS = series("kvcache_requests_total")
MISMATCH = 'pool="c4",kind="compressed",layer="bytes",reason="checksum_mismatch"'
FAILURES = series("kvcache_validation_failures_total", MISMATCH)
LOADS = series("kvcache_load_duration_seconds_count")
FAST_LOADS = series("kvcache_load_duration_seconds_bucket", 'le="2.0"')
POISONED = series("kvcache_log_poisoned")
UP = series("kvcache_engine_up")
CLOSED = series("kvcache_log_closed")
DURATIONS = "kvcache_recovery_duration_seconds"


def drift(kind: str) -> str:
    return series("kvcache_drift_total", f'drift="{kind}"')


def pages(state: str) -> str:
    return series("kvcache_pool_pages", f'pool="c4",kind="compressed",state="{state}"')


def capacity() -> str:
    return series("kvcache_pool_capacity_pages", 'pool="c4",kind="compressed"')


def hits(rate_before: int, rate_after: int, minutes_before: int, minutes_after: int) -> str:
    """Hits of a hundred tokens looked up a minute, at one rate and then at another."""
    reached = rate_before * minutes_before
    return f"0+{rate_before}x{minutes_before} {reached}+{rate_after}x{minutes_after}"


HIT = series("kvcache_hit_tokens_total", 'source="device"')
ASKED = series("kvcache_lookup_tokens_total", 'source="device"')
DENIED = series("kvcache_admission_decisions_total", 'decision="denied",reason="queue"')
TIER = series("kvcache_tier_failures_total", 'tier="disk",reason="store_failed"')
WAITING = series("kvcache_admission_waiting_requests")
RUNNING = series("kvcache_sequences")

CASES: dict[str, Case] = {
    "KVCacheValidationBurnFast": Case(
        {REQUESTS: "0+100x60", FAILURES: "0+2x60"},
        {REQUESTS: "0+100x60", FAILURES: "0+1x30 31+0x30"},
        at="40m",
        quiet_at="55m",
    ),
    "KVCacheValidationBurnSlow": Case(
        {REQUESTS: "0+1000x60", FAILURES: "0+2x60"},
        {REQUESTS: "0+10000x60", FAILURES: "0+2x60"},
        at="50m",
    ),
    "KVCacheRecoveryTimeBurnFast": Case(
        {LOADS: "0+10x60", FAST_LOADS: "0+8x60"},
        {LOADS: "0+100x60", FAST_LOADS: "0+99x60"},
    ),
    "KVCacheRecoveryTimeBurnSlow": Case(
        {LOADS: "0+100x60", FAST_LOADS: "0+96x60"},
        {LOADS: "0+1000x60", FAST_LOADS: "0+999x60"},
        at="50m",
    ),
    "KVCacheByteDrift": Case({FAILURES: "0x20 1x20"}, {FAILURES: "3x40"}, at="25m"),
    "KVCacheNumericDrift": Case(
        {drift("numeric"): "0x20 1x20"}, {drift("bytes"): "0x20 1x20"}, at="25m"
    ),
    "KVCacheProjectionDiverged": Case(
        {drift("projection"): "0x20 1x20"}, {drift("projection"): "2x40"}, at="25m"
    ),
    "KVCacheIndexLag": Case(
        {series("kvcache_index_lag_pages", 'pool="c4.index",kind="indexer"'): "0x5 3x40"},
        {series("kvcache_index_lag_pages", 'pool="c4.index",kind="indexer"'): "0x5 3x5 0x40"},
    ),
    "KVCacheTopologyViolated": Case(
        {series("kvcache_topology_violations_total"): "0x20 1x20"},
        {series("kvcache_topology_violations_total"): "0x40"},
        at="25m",
    ),
    "KVCacheLogPoisoned": Case({POISONED: "0x5 1x40"}, {POISONED: "0x40"}),
    "KVCacheLogUnlogged": Case(
        {series("kvcache_log_unlogged"): "1x40"}, {series("kvcache_log_unlogged"): "0x40"}
    ),
    "KVCacheLogStalled": Case(
        {series("kvcache_log_stalled"): "1x40", UP: "1x40"},
        {series("kvcache_log_stalled"): "1x40", UP: "0x40"},
    ),
    "KVCacheLogRingFilling": Case(
        {
            series("kvcache_log_ring_events"): "900x40",
            series("kvcache_log_ring_capacity_events"): "1024x40",
        },
        {
            series("kvcache_log_ring_events"): "100x40",
            series("kvcache_log_ring_capacity_events"): "1024x40",
        },
    ),
    "KVCacheFollowerLagging": Case(
        {series("kvcache_follower_lag_seconds"): "0x5 0+60x40"},
        {
            series("kvcache_follower_lag_seconds"): "0.2x40",
            series("kvcache_follower_lag_events"): "5000x40",
        },
    ),
    "KVCacheFollowerFailed": Case(
        {series("kvcache_follower_failed"): "0x5 1x40"},
        {series("kvcache_follower_failed"): "0x40"},
    ),
    "KVCachePoolExhausted": Case(
        {pages("free"): "0x40", pages("sealed_idle"): "1x40", capacity(): "1000x40"},
        {pages("free"): "0x40", pages("sealed_idle"): "600x40", capacity(): "1000x40"},
    ),
    "KVCacheAdmissionStarved": Case(
        {WAITING: "4x40", RUNNING: "8x40", REQUESTS: "50x40"},
        {WAITING: "4x40", RUNNING: "8x40", REQUESTS: "0+1x40"},
    ),
    "KVCacheAdmissionDenying": Case(
        {DENIED: "0+10x40", REQUESTS: "0+90x40"},
        {DENIED: "0+1x40", REQUESTS: "0+99x40"},
    ),
    "KVCacheHitRateCollapsed": Case(
        {ASKED: "0+100x210", HIT: hits(80, 10, 150, 60)},
        {ASKED: "0+100x210", HIT: hits(80, 60, 150, 60)},
        at="195m",
    ),
    "KVCacheTierFailing": Case({TIER: "0+1x40"}, {TIER: "0x20 1x20"}),
    "KVCacheExporterAbsent": Case({series("up"): "1x10 0x30"}, {series("up"): "1x40"}),
    "KVCacheEngineAbsent": Case({UP: "1x5 0x40", CLOSED: "0x45"}, {UP: "0x40", CLOSED: "1x40"}),
    "KVCacheEngineCrashLoop": Case(
        {series("kvcache_engine_crashes_total"): "0x10 1x3 2x3 3x3 4x20"},
        {series("kvcache_engine_crashes_total"): "0x10 1x30"},
        at="25m",
    ),
    "KVCacheCrashRecoverySlow": Case(
        {
            series(f"{DURATIONS}_count"): "0x10 1x40",
            series(f"{DURATIONS}_bucket", 'le="30.0"'): "0x50",
        },
        {
            series(f"{DURATIONS}_count"): "0x10 1x40",
            series(f"{DURATIONS}_bucket", 'le="30.0"'): "0x10 1x40",
        },
    ),
}

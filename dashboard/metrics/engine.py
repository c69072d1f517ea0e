"""Metrics of the engine's life: its log, its crashes, and the follower that reads it."""

from typing import Final

from kvstrata.eventstore.history.histogram import RECOVERY_BOUNDS_SECONDS

from .metric import Metric

__all__ = ["ENGINE_METRICS"]


def _status(name: str, unit: str, text: str) -> Metric:
    return Metric(name, "gauge", unit, (), text, "status page")


_LOG: Final = (
    _status(
        "kvcache_log_ring_events",
        "events",
        "Events in the ring that the writer has not written yet: the ring's depth and drain lag",
    ),
    _status("kvcache_log_ring_capacity_events", "events", "Events that the ring holds"),
    _status(
        "kvcache_log_durable_lag_events",
        "events",
        "Events published that a power loss would take back",
    ),
    _status(
        "kvcache_log_heartbeat_age_seconds",
        "seconds",
        "Time since the log writer's last sign of life",
    ),
    _status(
        "kvcache_log_poisoned", "1", "1 where a write or sync failed: nothing later is durable"
    ),
    _status("kvcache_log_unlogged", "1", "1 where the log epoch was ended: a restart will be cold"),
    _status("kvcache_log_stalled", "1", "1 where the writer is silent beyond the stall limit"),
    _status("kvcache_log_closed", "1", "1 where the engine closed the log in order"),
    _status("kvcache_engine_up", "1", "1 where the process that writes the log is alive"),
    _status("kvcache_engine_incarnation", "1", "Number of this life of the engine"),
    Metric(
        "kvcache_log_stalls_total",
        "counter",
        "1",
        (),
        "Waits of the engine for room in the ring, of the incarnations seen by this exporter",
        "status page",
    ),
    Metric(
        "kvcache_log_syncs_total",
        "counter",
        "1",
        (),
        "Syncs of the log, of the incarnations seen by this exporter",
        "status page",
    ),
    Metric("kvcache_events_total", "counter", "events", ("type",), "Events applied", "event log"),
)

_CRASHES: Final = (
    Metric(
        "kvcache_engine_starts_total",
        "counter",
        "1",
        (),
        "Times that an engine opened this log",
        "event log",
    ),
    Metric(
        "kvcache_engine_crashes_total",
        "counter",
        "1",
        (),
        "Starts that found the engine before had died, not closed",
        "event log",
    ),
    Metric(
        "kvcache_crash_pages_total",
        "counter",
        "pages",
        ("outcome",),
        "Pages that recoveries after a start kept and lost",
        "event log",
    ),
    Metric(
        "kvcache_recovery_duration_seconds",
        "histogram",
        "seconds",
        (),
        "How long clearing up after the incarnation before took",
        "event log",
        RECOVERY_BOUNDS_SECONDS,
    ),
    Metric(
        "kvcache_replayed_events_total",
        "counter",
        "events",
        (),
        "Events that engines replayed when they opened this log",
        "event log",
    ),
    Metric(
        "kvcache_replay_seconds_total",
        "counter",
        "seconds",
        (),
        "How long engines replayed when they opened this log",
        "event log",
    ),
)


def _follower(name: str, unit: str, text: str) -> Metric:
    is_counter = name.endswith("_total")
    return Metric(name, "counter" if is_counter else "gauge", unit, (), text, "follower")


_FOLLOWER: Final = (
    _follower(
        "kvcache_follower_lag_events", "events", "Durable events that were not applied here yet"
    ),
    _follower(
        "kvcache_follower_lag_seconds",
        "seconds",
        "For how long there have been durable events that were not applied here; 0 where none are",
    ),
    _follower(
        "kvcache_follower_last_event_timestamp_seconds",
        "seconds",
        "Unix time of the last event applied",
    ),
    _follower(
        "kvcache_follower_failed", "1", "1 where the follower cannot go on; its API says why"
    ),
    _follower(
        "kvcache_follower_restarts_total", "1", "Times that it had to start anew on another log"
    ),
    _follower(
        "kvcache_follower_missed_events_total",
        "events",
        "Events that it neither applied nor counted, since they were pruned away before",
    ),
    _follower(
        "kvcache_follower_applied_events_total", "events", "Events applied since it was started"
    ),
    _follower(
        "kvcache_follower_apply_seconds_total",
        "seconds",
        "How long it was applying events since it was started",
    ),
    Metric(
        "kvcache_build_info",
        "gauge",
        "1",
        ("version", "schema"),
        "1; the labels say which kvstrata serves this",
        "exporter",
    ),
    Metric(
        "kvcache_layout_info",
        "gauge",
        "1",
        ("layout", "digest", "block_tokens"),
        "1; the labels say which layout the cache has",
        "follower",
    ),
    Metric(
        "kvcache_exporter_scrape_seconds",
        "gauge",
        "seconds",
        (),
        "CPU time that reading the values of this scrape took",
        "exporter",
    ),
)

ENGINE_METRICS: Final = (*_LOG, *_CRASHES, *_FOLLOWER)

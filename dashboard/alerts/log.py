"""Alerts on the event log, and on the follower that reads it."""

from typing import Final

from .alert import Alert, Runbook, Step

__all__ = ["LOG_ALERTS"]

POISONED: Final = Alert(
    "KVCacheLogPoisoned",
    "kvcache_log_poisoned == 1",
    "0m",
    "critical",
    "The event log of {{ $labels.instance }} is poisoned",
    "A write or sync failed. Nothing later is durable, and the engine goes on unlogged.",
    Runbook(
        "A write or fdatasync of the log failed. What the kernel kept of it is unknown, so nothing "
        "is tried again and nothing later is called durable.",
        "Requests are served as before. flush() raises; a restart will be cold; followers, the API "
        "and these metrics stand still at the last durable event.",
        (
            Step("What failed, and where the log ends.", "GET /v1/recovery"),
            Step("Whether what is stored is sound.", "kvstrata fsck DIR"),
            Step("The disk under the directory: full, read-only, or with I/O errors."),
        ),
        (
            Step("Repair or replace the disk first."),
            Step(
                "Drain the engine and open it anew; where the directory is beyond repair, with an "
                "empty one.",
                'POST /v1/commands {"kind": "drain"}',
            ),
        ),
    ),
)

UNLOGGED: Final = Alert(
    "KVCacheLogUnlogged",
    "kvcache_log_unlogged == 1",
    "0m",
    "critical",
    "The engine on {{ $labels.instance }} serves unlogged",
    "The log epoch was ended. Serving goes on, a restart will be cold.",
    Runbook(
        "The engine ended its log epoch: the writer was dead or stalled beyond its limit, or the "
        "log is poisoned. No event is dropped silently; from that moment none is logged.",
        "Requests are served as before. After a restart nothing that was cached since is there; "
        "pages in memory are not trusted.",
        (
            Step("Where the log ends, and what its writer did last.", "GET /v1/recovery"),
            Step("What a restart would find.", "kvstrata recover DIR --dry-run"),
            Step("Latency of the disk under the directory, and room on it."),
        ),
        (
            Step("End what holds the disk up, then drain the engine and open it anew.",
                 'POST /v1/commands {"kind": "drain"}'),
        ),
    ),
)  # fmt: skip

STALLED: Final = Alert(
    "KVCacheLogStalled",
    "kvcache_log_stalled == 1 and kvcache_engine_up == 1",
    "1m",
    "critical",
    "The log writer of {{ $labels.instance }} is silent",
    "The engine lives, its log writer gives no sign of life. When the ring is full the engine will "
    "go on unlogged.",
    Runbook(
        "The writer's heartbeat on the status page is older than the stall limit, while the "
        "process is alive.",
        "Events pile up in the ring. When it is full, calls wait, then the epoch is ended and the "
        "engine serves unlogged.",
        (
            Step("What the writer was doing.", "GET /v1/recovery"),
            Step("How full the ring is and how far durable events are behind.", "GET /metrics"),
            Step("Whether a sync hangs: processes in state D, errors of the disk."),
        ),
        (
            Step(
                "Free the disk, or fail it, so that the sync returns; then see KVCacheLogUnlogged."
            ),
        ),
    ),
)

RING_FILLING: Final = Alert(
    "KVCacheLogRingFilling",
    "kvcache_log_ring_events / kvcache_log_ring_capacity_events > 0.8",
    "1m",
    "warning",
    "The ring of {{ $labels.instance }} is {{ $value | humanizePercentage }} full",
    "The writer does not keep up with the engine; when the ring is full, calls wait.",
    Runbook(
        "Events are published faster than the writer drains them to the disk.",
        "Calls of the engine wait for room once the ring is full: latency of every step rises.",
        (
            Step("Stalls so far, ring depth and durable lag.", "GET /metrics"),
            Step("Which events come so fast.", "kvstrata query DIR activity"),
        ),
        (
            Step("Give the log a faster disk, or a longer interval between syncs."),
            Step("Raise ring_events of the engine's LogConfig."),
        ),
    ),
)

FOLLOWER_LAG: Final = Alert(
    "KVCacheFollowerLagging",
    "kvcache_follower_lag_seconds > 30 or kvcache_follower_lag_events > 1000000",
    "2m",
    "warning",
    "The follower on {{ $labels.instance }} lags",
    "It is {{ $value | humanize }} (seconds, or events) behind the durable log. The API, metrics "
    "and alerts show the past.",
    Runbook(
        "Durable events were not applied by the follower for half a minute, or a million of them "
        "wait.",
        "The engine is not affected. What the API, the dashboards and most alerts show is old; "
        "drift is found later.",
        (
            Step("Whether the service answers, and what it says of itself.", "GET /readyz"),
            Step("Where the follower stands.", "GET /v1/recovery"),
            Step("CPU of the process that follows; a stopped or starved thread."),
        ),
        (
            Step("Restart the service: it resumes from its memory file."),
            Step("Give it a core of its own, or fewer queries."),
        ),
    ),
)

FOLLOWER_FAILED: Final = Alert(
    "KVCacheFollowerFailed",
    "kvcache_follower_failed == 1",
    "1m",
    "critical",
    "The follower on {{ $labels.instance }} cannot go on",
    "It met something in the log that it cannot apply. The API, metrics and alerts stand still.",
    Runbook(
        "The follower found damage, a gap, or an event that its tables refuse.",
        "The engine is not affected. Everything shown is of the moment it stopped.",
        (
            Step("What it found.", "GET /v1/recovery"),
            Step("Whether the stored log is sound.", "kvstrata fsck DIR"),
        ),
        (
            Step("Restart the service; where it fails again, keep a copy of the directory."),
            Step(
                "Repair a damaged log while the engine is closed.",
                "kvstrata fsck DIR --repair",
            ),
        ),
    ),
)

LOG_ALERTS: Final = (POISONED, UNLOGGED, STALLED, RING_FILLING, FOLLOWER_LAG, FOLLOWER_FAILED)

"""Alerts on engines and exporters that are not there."""

from typing import Final

from .alert import Alert, Runbook, Step

__all__ = ["JOB", "LIFE_ALERTS"]

JOB: Final = "kvstrata"
"""Name of the scrape job that the rules expect."""

EXPORTER_ABSENT: Final = Alert(
    "KVCacheExporterAbsent",
    f'up{{job="{JOB}"}} == 0 or absent(up{{job="{JOB}"}})',
    "2m",
    "critical",
    "No metrics come from {{ $labels.instance }}",
    f"The job {JOB} is not scraped, or a target of it does not answer. No other alert of the "
    "cache can fire for it.",
    Runbook(
        "Prometheus cannot scrape a service of the cache, or knows no target of the job.",
        "The engine may be well, nobody sees it: every other alert is blind.",
        (
            Step("Whether the service answers.", "GET /healthz"),
            Step("Whether its follower is well.", "GET /readyz"),
            Step("The target's last error, on Prometheus' page of targets."),
        ),
        (
            Step(
                "Start the service again; beside the engine or mounted in it.",
                "kvstrata serve DIR",
            ),
        ),
    ),
)

ENGINE_ABSENT: Final = Alert(
    "KVCacheEngineAbsent",
    "kvcache_engine_up == 0 unless on (job, instance) kvcache_log_closed == 1",
    "1m",
    "critical",
    "The engine of {{ $labels.instance }} is gone",
    "The process that wrote the log is not alive and did not close it. One that was closed in "
    "order does not raise this.",
    Runbook(
        "The engine's process died without closing its log: killed, out of memory, or the machine "
        "restarted.",
        "Nothing is served. What was durable survives; pages in shared memory survive unless the "
        "machine restarted.",
        (
            Step("What a restart would find and keep.", "kvstrata recover DIR --dry-run"),
            Step("What the log says of its last life.", "GET /v1/recovery"),
            Step("Why the process died: the supervisor's log, the kernel's about memory."),
        ),
        (
            Step("Start the engine: it recovers by itself, warm where memory survived."),
            Step("Where it refuses a damaged log.", "kvstrata fsck DIR"),
        ),
    ),
)

RESTARTING: Final = Alert(
    "KVCacheEngineCrashLoop",
    "sum by (job, instance) (increase(kvcache_engine_crashes_total[30m])) > 2",
    "0m",
    "critical",
    "The engine of {{ $labels.instance }} crashes again and again",
    '{{ $value | printf "%.0f" }} crashes within half an hour.',
    Runbook(
        "The engine died and was started again more than twice within half an hour.",
        "Running requests fail at every crash; each recovery costs time.",
        (
            Step("What was lost each time.", "GET /v1/recovery"),
            Step(
                "The last events before each crash.",
                "kvstrata events DIR --type RECOVERY_ENDED --limit 20",
            ),
        ),
        (
            Step("Stop the supervisor from restarting it, and look at the first crash."),
            Step("Start with an empty directory where the crash comes from what is stored."),
        ),
    ),
)

RECOVERY_SLOW: Final = Alert(
    "KVCacheCrashRecoverySlow",
    "sum by (job, instance) (increase(kvcache_recovery_duration_seconds_count[1h])) "
    '- sum by (job, instance) (increase(kvcache_recovery_duration_seconds_bucket{le="30.0"}[1h]))'
    " > 0",
    "0m",
    "warning",
    "A recovery on {{ $labels.instance }} took longer than 30 s",
    '{{ $value | printf "%.0f" }} recoveries of the last hour were slower than the objective.',
    Runbook(
        "Clearing up after the life before took an engine longer than 30 s.",
        "The engine serves only after its recovery; every restart costs that long.",
        (
            Step("What was replayed, checked, kept and lost.", "GET /v1/recovery"),
            Step("Snapshots there are to begin from.", "kvstrata fsck DIR"),
        ),
        (
            Step(
                "Take a snapshot now, and configure them more often.",
                'POST /v1/commands {"kind": "snapshot"}',
            ),
        ),
    ),
)

LIFE_ALERTS: Final = (EXPORTER_ABSENT, ENGINE_ABSENT, RESTARTING, RECOVERY_SLOW)

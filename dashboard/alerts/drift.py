"""Alerts on what must be equal and is not."""

from typing import Final

from .alert import Alert, Runbook, Step

__all__ = ["DRIFT_ALERTS"]

_QUARANTINE: Final = (
    'POST /v1/commands {"kind": "quarantine", "group": "GROUP", "page": PAGE, '
    '"generation": GENERATION}'
)

BYTE_DRIFT: Final = Alert(
    "KVCacheByteDrift",
    "sum by (job, instance, pool, kind) "
    '(increase(kvcache_validation_failures_total{reason="checksum_mismatch"}[15m])) > 0',
    "0m",
    "critical",
    "Bytes of sealed pages changed in pool {{ $labels.pool }} of {{ $labels.instance }}",
    '{{ $value | printf "%.0f" }} pages of kind {{ $labels.kind }} no longer have the bytes that '
    "were sealed. They were withdrawn before anybody could hit them.",
    Runbook(
        "A page's bytes no longer match the checksum of its sealing. A hit, a load, a recovery or "
        "the scrubber found it, and the page is in quarantine.",
        "Requests whose prefix stood on the page compute it again. What was read from it before "
        "it was found may have been wrong: the model goes on fluently.",
        (
            Step(
                "Which pages, since when.",
                "GET /v1/failures?limit=20",
            ),
            Step("The life of one of them.", "GET /v1/blocks/GROUP/PAGE/history"),
            Step(
                "Many pages of one pool, one stride apart, point to a kernel that writes out of "
                "bounds; single ones on one device to its memory.",
                "kvstrata query DIR failures",
            ),
            Step("Whether objects on disk are affected too.", "kvstrata tiers check STORE"),
        ),
        (
            Step("Check everything that is sealed now.", 'POST /v1/commands {"kind": "scrub"}'),
            Step(
                "Where it goes on: drain the engine, check the device's memory errors, and restart "
                "on another.",
                'POST /v1/commands {"kind": "drain"}',
            ),
        ),
    ),
)

NUMERIC_DRIFT: Final = Alert(
    "KVCacheNumericDrift",
    'sum by (job, instance) (increase(kvcache_drift_total{drift="numeric"}[30m])) > 0',
    "0m",
    "critical",
    "Stored values differ from computed ones on {{ $labels.instance }}",
    '{{ $value | printf "%.0f" }} sampled pages were beyond the tolerance when the engine computed '
    "them again.",
    Runbook(
        "The engine computed sampled blocks again, and stored values differ from computed ones by "
        "more than the tolerance, though bytes and checksums agree.",
        "Hits on such blocks give other answers than computing would. Checksums cannot see it: "
        "the bytes are what was sealed, the values were wrong when they were sealed.",
        (
            Step("Kind, layer and size of each difference.", "GET /v1/drift"),
            Step("The samples over time.", "kvstrata query DIR drift"),
            Step(
                "A constant factor points to a scale or mapping; noise to another kernel or dtype.",
                "GET /v1/layout",
            ),
        ),
        (
            Step("Withdraw the pages that the samples name.", _QUARANTINE),
            Step(
                "Register the compression mapping under a new version: nothing of the old one is "
                "hit any more."
            ),
        ),
    ),
)

PROJECTION_DIVERGED: Final = Alert(
    "KVCacheProjectionDiverged",
    'sum by (job, instance) (increase(kvcache_drift_total{drift="projection"}[30m])) > 0',
    "0m",
    "critical",
    "The engine's tables and its log disagree on {{ $labels.instance }}",
    '{{ $value | printf "%.0f" }} slices of the engine\'s tables had another digest than the log '
    "gives. The first range of events that differs is in the incident.",
    Runbook(
        "The engine logs digests of its tables, slice by slice; the follower, which made its "
        "tables from the log alone, has another digest for one of them.",
        "A table word was changed behind the log: by a stray write, or by memory that failed. "
        "Requests may be given pages that are not theirs, and a restart will come up different.",
        (
            Step("The slices and the range of events.", "GET /v1/drift"),
            Step("The incident with its notes.", "GET /v1/incidents?state=open"),
            Step(
                "What happened in the range that the incident names.",
                "kvstrata events DIR --from FIRST --to LAST",
            ),
            Step("Whether the stored log is sound.", "kvstrata fsck DIR"),
        ),
        (
            Step(
                "Restart the engine: it rebuilds its tables from the log. Keep a copy of the "
                "directory first.",
                'POST /v1/commands {"kind": "drain"}',
            ),
            Step("Report it with the copy: it is a bug, or memory that fails."),
        ),
    ),
)

INDEX_LAG: Final = Alert(
    "KVCacheIndexLag",
    "sum by (job, instance, pool) (kvcache_index_lag_pages) > 0",
    "10m",
    "warning",
    "Index {{ $labels.pool }} of {{ $labels.instance }} lags behind what it indexes",
    "{{ $value }} sealed pages of the index were written after their sealing, or made for another "
    "compression mapping. No hit adopts them.",
    Runbook(
        "Pages of an INDEXER pool are sealed and no hit any more: they were written again after "
        "their sealing, or belong to another version of the compression mapping.",
        "Blocks with such pages fail validation (INDEX_DIRTY, INDEX_STALE) and are computed again; "
        "until then they take room.",
        (
            Step("Which pages of the index.", "GET /v1/blocks?group=GROUP&state=SEALED&limit=20"),
            Step(
                "Failures that they caused.",
                "GET /v1/failures?limit=20",
            ),
            Step(
                "Who wrote them, and which mapping is registered since when.",
                "kvstrata events DIR --type PAGE_DIRTIED --type MAPPING_REGISTERED --limit 20",
            ),
        ),
        (
            Step("Stop the writer that rebuilds the index in place; it must seal new pages."),
            Step(
                "Drop the prefixes concerned, so that they are computed anew.",
                'POST /v1/commands {"kind": "drop_prefix", "key": "KEY"}',
            ),
        ),
    ),
)

TOPOLOGY: Final = Alert(
    "KVCacheTopologyViolated",
    "sum by (job, instance) (increase(kvcache_topology_violations_total[1h])) > 0",
    "0m",
    "critical",
    "A pool moved under captured graphs on {{ $labels.instance }}",
    "The engine's pools are no longer where they were when the topology was sealed; the manager "
    "has stopped mutating.",
    Runbook(
        "A pool's address, shape or stride differs from what seal_topology recorded. Captured "
        "graphs would read and write other memory.",
        "The manager refuses every further call (InvariantViolation); the engine serves nothing "
        "until it is opened anew.",
        (
            Step("The event, and what came just before.", "kvstrata events DIR --limit 20"),
            Step("The last failures.", "GET /v1/failures?limit=5"),
            Step("Whether a restart would be warm.", "kvstrata recover DIR --dry-run"),
        ),
        (
            Step("Restart the engine; capture graphs only after its pools are allocated."),
            Step("Find what allocated pools again: sleep and wake, a reload, a resize."),
        ),
    ),
)

DRIFT_ALERTS: Final = (BYTE_DRIFT, NUMERIC_DRIFT, PROJECTION_DIVERGED, INDEX_LAG, TOPOLOGY)

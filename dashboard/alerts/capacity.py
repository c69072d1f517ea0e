"""Alerts on room and hits: pools, admission, hit rate, tiers."""

from typing import Final

from .alert import Alert, Runbook, Step

__all__ = ["CAPACITY_ALERTS"]

POOL_EXHAUSTED: Final = Alert(
    "KVCachePoolExhausted",
    "instance_pool:kvcache_available_pages:ratio < 0.02",
    "5m",
    "critical",
    "Pool {{ $labels.pool }} of {{ $labels.instance }} has no room",
    "{{ $value | humanizePercentage }} of the pool's pages are free or evictable.",
    Runbook(
        "Less than 2 % of a pool's pages are free or evictable; the others are held by running "
        "sequences, leases, loads or quarantine.",
        "New requests are deferred or refused (OutOfPages), steps of running ones do not fit.",
        (
            Step("Pages of each pool by state.", "GET /v1/pools"),
            Step("Who holds them.", "GET /v1/sequences"),
            Step("Leases held outside sequences, by age.", "GET /v1/leases"),
            Step("Pages in quarantine.", "GET /v1/blocks?state=QUARANTINED&limit=20"),
        ),
        (
            Step("End what holds pages for nothing: leaked leases, abandoned sequences."),
            Step("Unpin prefixes.", 'POST /v1/commands {"kind": "unpin", "key": "KEY"}'),
            Step("Lower max_sequences or raise the budget of the pool."),
        ),
    ),
)

STARVED: Final = Alert(
    "KVCacheAdmissionStarved",
    "kvcache_admission_waiting_requests > 0 and kvcache_sequences > 0 "
    "and on (job, instance) (increase(kvcache_requests_total[5m]) == 0)",
    "2m",
    "critical",
    "Requests wait on {{ $labels.instance }} and none begins",
    "{{ $value }} requests wait for admission, and none has begun for five minutes.",
    Runbook(
        "Requests wait for admission, sequences run, and no request has begun for minutes.",
        "Waiting requests meet their deadlines or their users' patience.",
        (
            Step("Who waits, and for which limit.", "GET /v1/admission"),
            Step("What runs, and since when.", "GET /v1/sequences"),
            Step("Whether an operator drains it: then this is meant.", "GET /v1/commands?limit=5"),
            Step("Answers of admission.", "kvstrata query DIR admission"),
        ),
        (
            Step("End sequences that hold blocks without computing."),
            Step("Raise the limit that the answers name, or send the load elsewhere."),
        ),
    ),
)

DENYING: Final = Alert(
    "KVCacheAdmissionDenying",
    "sum by (job, instance) (rate(kvcache_admission_decisions_total{decision=\"denied\"}[5m])) "
    "/ (sum by (job, instance) (rate(kvcache_admission_decisions_total{decision=\"denied\"}[5m])) "
    "+ sum by (job, instance) (rate(kvcache_requests_total[5m]))) > 0.05",
    "5m",
    "warning",
    "Admission denies {{ $value | humanizePercentage }} of the requests on {{ $labels.instance }}",
    "More than one request in twenty is not served: the queue is full, its deadline would pass, "
    "or it would never fit.",
    Runbook(
        "Admission refuses more than 5 % of the requests for good.",
        "Those requests fail; the engine's caller sees AdmissionDenied.",
        (
            Step("Why: queue, deadline or never_fits.", "GET /v1/admission"),
            Step(
                "The last of them.",
                "kvstrata events DIR --type ADMISSION_DENIED --limit 20",
            ),
        ),
        (
            Step("queue, deadline: send load elsewhere, or raise max_waiting and deadlines."),
            Step("never_fits: raise max_tokens_per_sequence or the pools, or refuse them earlier."),
        ),
    ),
)  # fmt: skip

HIT_RATE: Final = Alert(
    "KVCacheHitRateCollapsed",
    "instance:kvcache_hit_tokens:ratio_rate15m "
    "< 0.5 * avg_over_time(instance:kvcache_hit_tokens:ratio_rate15m[1d] offset 1h) "
    "and avg_over_time(instance:kvcache_hit_tokens:ratio_rate15m[1d] offset 1h) > 0.1",
    "15m",
    "warning",
    "Hits of {{ $labels.instance }} fell to less than half",
    "{{ $value | humanizePercentage }} of the prompt tokens looked up are hits, less than half of "
    "the day before.",
    Runbook(
        "The share of prompt tokens that are hits fell below half of the last day's average.",
        "Requests compute what used to be there: time to first token and load rise.",
        (
            Step(
                "Why one prompt, that should hit, does not.",
                "POST /v1/explain {\"tokens\": [1, 2, 3], \"model\": \"MODEL\"}",
            ),
            Step("Evictions and their age: pages that go young mean too little room.",
                 "kvstrata query DIR evictions"),
            Step("Failures that keep hits away.", "GET /v1/failures?limit=20"),
            Step("Hit and resume lengths over time.", "kvstrata query DIR hits"),
        ),
        (
            Step("Changed weights, adapter, tenant salt or chat template make new keys: undo it, "
                 "or wait until the cache is warm again."),
            Step("Give pools or lower tiers more room where evictions are young."),
        ),
    ),
)  # fmt: skip

TIER_FAILING: Final = Alert(
    "KVCacheTierFailing",
    "sum by (job, instance, tier) (rate(kvcache_tier_failures_total[5m])) > 0",
    "5m",
    "warning",
    "Tier {{ $labels.tier }} of {{ $labels.instance }} fails",
    "{{ $value | humanize }} failures a second, for five minutes: objects that are not what they "
    "should be, or a store that does not answer.",
    Runbook(
        "Loads or spills of a tier fail, or objects in it are damaged or gone.",
        "Prefixes are computed instead of loaded; a damaged object is set aside and never served.",
        (
            Step("How each tier stands, and its faults by reason.", "GET /v1/tiers"),
            Step("What the failures were.", "kvstrata events DIR --type OBJECT_FAILED --limit 20"),
            Step("Every object of the store, checked.", "kvstrata tiers check STORE --json"),
        ),
        (
            Step("store_full: raise cap_bytes or make room.", "kvstrata tiers show STORE"),
            Step("store_failed, store_timeout: repair the disk or the network; the tier is asked "
                 "again by itself."),
            Step("Damaged objects: set them aside.", "kvstrata tiers check STORE --quarantine"),
        ),
    ),
)  # fmt: skip

CAPACITY_ALERTS: Final = (POOL_EXHAUSTED, STARVED, DENYING, HIT_RATE, TIER_FAILING)

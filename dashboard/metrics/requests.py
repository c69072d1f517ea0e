"""Metrics of requests: what they found, what they had to compute, how long they waited."""

from typing import Final

from kvstrata.eventstore.history.histogram import LENGTH_BOUNDS_TOKENS, WAIT_BOUNDS_SECONDS

from .metric import Metric

__all__ = ["REQUEST_METRICS"]

REQUEST_METRICS: Final = (
    Metric("kvcache_requests_total", "counter", "requests", (), "Requests begun", "event log"),
    Metric(
        "kvcache_prompt_tokens_total",
        "counter",
        "tokens",
        (),
        "Prompt tokens of the requests begun",
        "event log",
    ),
    Metric(
        "kvcache_source_tokens_total",
        "counter",
        "tokens",
        ("source",),
        "Prompt tokens by where they came from; the sources sum to kvcache_prompt_tokens_total",
        "event log",
    ),
    Metric(
        "kvcache_lookup_tokens_total",
        "counter",
        "tokens",
        ("source",),
        "Prompt tokens looked up in a source: on the device all that were not the request's own, "
        "in the tiers below only those that the device lacked",
        "event log",
    ),
    Metric(
        "kvcache_hit_tokens_total",
        "counter",
        "tokens",
        ("source",),
        "Prompt tokens found in a source, of those looked up there",
        "event log",
    ),
    Metric(
        "kvcache_request_hits_total",
        "counter",
        "1",
        (),
        "Requests that reused more than what they had computed themselves",
        "event log",
    ),
    Metric(
        "kvcache_recomputed_tokens_total",
        "counter",
        "tokens",
        (),
        "Tokens whose history was reused and that were computed again for their state",
        "event log",
    ),
    Metric(
        "kvcache_resume_length_tokens",
        "histogram",
        "tokens",
        (),
        "Position at which a request resumed",
        "event log",
        LENGTH_BOUNDS_TOKENS,
    ),
    Metric(
        "kvcache_hit_length_tokens",
        "histogram",
        "tokens",
        (),
        "Tokens that a request found on the device or in a tier",
        "event log",
        LENGTH_BOUNDS_TOKENS,
    ),
    Metric(
        "kvcache_limited_hits_total",
        "counter",
        "1",
        ("reason",),
        "Hits that were shorter than what is here, since a group or a rank had less",
        "event log",
    ),
    Metric(
        "kvcache_limited_tokens_total",
        "counter",
        "tokens",
        (),
        "Tokens that were here and not reused, since a group or a rank had less",
        "event log",
    ),
    Metric(
        "kvcache_validation_failures_total",
        "counter",
        "1",
        ("pool", "kind", "layer", "reason"),
        "Pages, or groups, that failed validation",
        "event log",
    ),
    Metric(
        "kvcache_topology_violations_total",
        "counter",
        "1",
        (),
        "Times that a pool was found elsewhere than it was sealed",
        "event log",
    ),
    Metric(
        "kvcache_completion_anomalies_total",
        "counter",
        "1",
        ("reason",),
        "Completions that nobody waited for",
        "event log",
    ),
    Metric(
        "kvcache_admission_decisions_total",
        "counter",
        "1",
        ("decision", "reason"),
        "Answers of admission to loads, and to requests that did not begin at once",
        "event log",
    ),
    Metric(
        "kvcache_admission_waiting_requests",
        "gauge",
        "requests",
        (),
        "Requests that waited, as of the last answer of admission",
        "event log",
    ),
    Metric(
        "kvcache_admission_wait_seconds",
        "histogram",
        "seconds",
        (),
        "How long requests had waited that were then granted",
        "event log",
        WAIT_BOUNDS_SECONDS,
    ),
)

"""Metrics of drift: differences between what must be equal, and how much was compared."""

from typing import Final

from .metric import Metric

__all__ = ["DRIFT_METRICS"]

_SAMPLED: Final = ("pool", "kind", "model_layer")

DRIFT_METRICS: Final = (
    Metric(
        "kvcache_drift_total",
        "counter",
        "1",
        ("drift",),
        "Differences found: tables that went another way than the log (by this follower since it "
        "was started), sealed pages whose bytes changed, whoever found it, sampled pages beyond "
        "their tolerance",
        "event log",
    ),
    Metric(
        "kvcache_projection_digests_total",
        "counter",
        "1",
        ("result",),
        "Digests of the engine's tables that the follower compared with its own since it was "
        "started",
        "follower",
    ),
    Metric(
        "kvcache_scrubbed_pages_total",
        "counter",
        "pages",
        (),
        "Sealed pages checksummed in the background",
        "event log",
    ),
    Metric(
        "kvcache_scrubbed_bytes_total",
        "counter",
        "bytes",
        (),
        "Bytes of sealed pages checksummed in the background",
        "event log",
    ),
    Metric(
        "kvcache_scrub_bad_pages_total",
        "counter",
        "pages",
        (),
        "Pages that scrubbing found changed",
        "event log",
    ),
    Metric(
        "kvcache_numeric_samples_total",
        "counter",
        "1",
        (*_SAMPLED, "result"),
        "Pages that the engine computed again and compared",
        "event log",
    ),
    Metric(
        "kvcache_numeric_max_abs_difference",
        "gauge",
        "1",
        _SAMPLED,
        "Greatest absolute difference in the last sample",
        "event log",
    ),
    Metric(
        "kvcache_numeric_cosine_similarity",
        "gauge",
        "1",
        _SAMPLED,
        "Cosine of stored and computed values in the last sample",
        "event log",
    ),
    Metric(
        "kvcache_commands_total",
        "counter",
        "1",
        (),
        "Operator commands that the engine ended; the API says how each did",
        "event log",
    ),
)

"""Metrics of the tiers below the device: loads, spills, and what failed."""

from typing import Final

from kvstrata.eventstore.history.histogram import WAIT_BOUNDS_SECONDS

from .metric import Metric

__all__ = ["TIER_METRICS"]


def _transfer(noun: str, verb: str) -> tuple[Metric, ...]:
    return (
        Metric(
            f"kvcache_{noun}s_total",
            "counter",
            "1",
            ("reason",),
            f"{noun.capitalize()}s ended, by how; none is all well",
            "event log",
        ),
        Metric(
            f"kvcache_{noun}_objects_total",
            "counter",
            "1",
            (),
            f"Objects {verb} by {noun}s that ended",
            "event log",
        ),
        Metric(
            f"kvcache_{noun}_bytes_total",
            "counter",
            "bytes",
            (),
            f"Bytes {verb} by {noun}s that ended",
            "event log",
        ),
        Metric(
            f"kvcache_{noun}_duration_seconds",
            "histogram",
            "seconds",
            (),
            f"How long {noun}s took, from their begin to their end",
            "event log",
            WAIT_BOUNDS_SECONDS,
        ),
    )


TIER_METRICS: Final = (
    Metric(
        "kvcache_recoveries_in_flight",
        "gauge",
        "1",
        (),
        "Loads from lower tiers in flight, which admission calls recoveries",
        "event log",
    ),
    Metric(
        "kvcache_recovering_bytes",
        "gauge",
        "bytes",
        (),
        "Bytes that loads in flight are to bring",
        "event log",
    ),
    Metric(
        "kvcache_spills_in_flight",
        "gauge",
        "1",
        (),
        "Spills in flight",
        "event log",
    ),
    *_transfer("load", "read"),
    *_transfer("spill", "written"),
    Metric(
        "kvcache_tier_failures_total",
        "counter",
        "1",
        ("tier", "reason"),
        "Objects that were not what they should be, and loads and spills that a tier failed",
        "event log",
    ),
    Metric(
        "kvcache_planner_compute_tokens_per_second",
        "gauge",
        "tokens_per_second",
        (),
        "Prompt tokens computed in a second, as the planner reckons",
        "tables",
    ),
    Metric(
        "kvcache_planner_copy_bytes_per_second",
        "gauge",
        "bytes_per_second",
        (),
        "Bytes of pages copied in a second, as the planner reckons",
        "tables",
    ),
    Metric(
        "kvcache_planner_load_bytes_per_second",
        "gauge",
        "bytes_per_second",
        (),
        "Bytes of objects loaded in a second, as the planner reckons",
        "tables",
    ),
)

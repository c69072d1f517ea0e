"""Reads the metrics of :mod:`..metrics.requests`."""

from collections.abc import Iterator
from typing import Final

from kvstrata.core.checks import CHECKS
from kvstrata.core.events import EventType, Reason

from ..metrics.labels import LAYER_NAMES, REASON_NAMES
from .sample import Distribution, Sample
from .view import View

__all__ = ["read_requests"]

_DECISIONS: Final = (
    ("deferred", EventType.ADMISSION_DEFERRED),
    ("denied", EventType.ADMISSION_DENIED),
)
_LIMITS: Final = tuple(reason for reason in Reason if Reason.BLOCKS <= reason <= Reason.JOINING)
_ANOMALIES: Final = (
    Reason.DUPLICATE_COMPLETION,
    Reason.GHOST_COMPLETION,
    Reason.LATE_COMPLETION,
)
_LIMITED: Final = (Reason.GROUP_LIMITED, Reason.RANK_LIMITED, Reason.RANK_INTERSECTION_EMPTY)


def read_requests(view: View) -> Iterator[Sample | Distribution]:
    """Values of the metrics of requests, validation and admission."""
    yield from _tokens(view)
    yield from _validation(view)
    yield from _admission(view)
    for reason in _LIMITED:
        yield Sample(
            "kvcache_limited_hits_total",
            (REASON_NAMES[reason],),
            int(view.counts[EventType.HIT_LIMITED, :, reason].sum()),
        )
    for reason in _ANOMALIES:
        yield Sample(
            "kvcache_completion_anomalies_total",
            (REASON_NAMES[reason],),
            int(view.counts[EventType.COMPLETION_ANOMALY, :, reason].sum()),
        )


def _tokens(view: View) -> Iterator[Sample | Distribution]:
    totals = view.totals
    yield Sample("kvcache_requests_total", (), totals["requests"])
    yield Sample("kvcache_request_hits_total", (), totals["hits"])
    yield Sample("kvcache_prompt_tokens_total", (), totals["prompt_tokens"])
    for source in ("computed", "device", "suspended", "tier"):
        yield Sample("kvcache_source_tokens_total", (source,), totals[f"{source}_tokens"])
    for source in ("device", "tier"):
        asked, found = totals[f"{source}_query_tokens"], totals[f"{source}_tokens"]
        yield Sample("kvcache_lookup_tokens_total", (source,), asked)
        yield Sample("kvcache_hit_tokens_total", (source,), found)
    yield Sample("kvcache_limited_tokens_total", (), totals["limited_tokens"])
    yield Sample("kvcache_recomputed_tokens_total", (), totals["recomputed_tokens"])
    yield Distribution("kvcache_resume_length_tokens", (), *view.histograms["resume_length"])
    yield Distribution("kvcache_hit_length_tokens", (), *view.histograms["hit_length"])


def _validation(view: View) -> Iterator[Sample]:
    """One value for each reason that can befall a pool, so that the first failure is a rise."""
    failures = view.counts[EventType.VALIDATION_FAILED]
    for reason, (layer, kinds) in _reasons().items():
        for group, spec in enumerate(view.layout.groups):
            count = int(failures[group, reason])
            if count or "all" in kinds or spec.kind.name in kinds:
                labels = (*view.pool_labels(group), LAYER_NAMES[layer], REASON_NAMES[reason])
                yield Sample("kvcache_validation_failures_total", labels, count)
    moved = int(failures[:, Reason.TOPOLOGY_MOVED].sum())
    yield Sample("kvcache_topology_violations_total", (), moved)


def _reasons() -> dict[Reason, tuple[int, set[str]]]:
    """Layer and kinds of pools by reason; several checks may share one.

    DRIFTED is none of a check before a hit: an engine that computes pages again finds it.
    """
    found: dict[Reason, tuple[int, set[str]]] = {Reason.DRIFTED: (0, {"all"})}
    for check in CHECKS:
        _, kinds = found.setdefault(check.reason, (check.layer, set()))
        kinds.update(check.kinds.split(", "))
    return found


def _admission(view: View) -> Iterator[Sample | Distribution]:
    granted = int(view.counts[EventType.ADMISSION_GRANTED].sum())
    none = REASON_NAMES[Reason.NONE]
    yield Sample("kvcache_admission_decisions_total", ("granted_after_wait", none), granted)
    for decision, kind in _DECISIONS:
        for reason in _LIMITS:
            count = int(view.counts[kind, :, reason].sum())
            labels = (decision, REASON_NAMES[reason])
            yield Sample("kvcache_admission_decisions_total", labels, count)
    yield Sample("kvcache_admission_waiting_requests", (), view.in_flight["waiting"])
    yield Distribution("kvcache_admission_wait_seconds", (), *view.histograms["admission_wait"])

"""Reads the metrics of :mod:`..metrics.tiers`."""

from collections.abc import Iterator
from typing import Final

import numpy as np

from kvstrata.core.events import EventType, Reason
from kvstrata.core.words import META_BYTES_PER_S, META_LOAD_BYTES_PER_S, META_TOKENS_PER_S

from ..metrics.labels import REASON_NAMES
from .sample import Distribution, Sample
from .view import View

__all__ = ["read_tiers"]

_TRANSFERS: Final = (("load", EventType.LOAD_ENDED), ("spill", EventType.SPILL_ENDED))
_RATES: Final = (
    ("kvcache_planner_compute_tokens_per_second", META_TOKENS_PER_S),
    ("kvcache_planner_copy_bytes_per_second", META_BYTES_PER_S),
    ("kvcache_planner_load_bytes_per_second", META_LOAD_BYTES_PER_S),
)
_USUAL_FAILURES: Final = (
    Reason.CHECKSUM_MISMATCH,
    Reason.OBJECT_MISSING,
    Reason.STORE_FAILED,
    Reason.STORE_FULL,
    Reason.STORE_TIMEOUT,
    Reason.TIER_DOWN,
)


def read_tiers(view: View) -> Iterator[Sample | Distribution]:
    """Values of the metrics of loads, spills and the tiers below the device."""
    totals = view.totals
    yield Sample("kvcache_recoveries_in_flight", (), view.in_flight["loads"])
    yield Sample("kvcache_recovering_bytes", (), view.in_flight["load_bytes"])
    yield Sample("kvcache_spills_in_flight", (), view.in_flight["spills"])
    for noun, kind in _TRANSFERS:
        ended = view.counts[kind].sum(axis=0)
        for code in sorted({int(Reason.NONE), *np.flatnonzero(ended).tolist()}):
            if code in REASON_NAMES:
                labels = (REASON_NAMES[code],)
                yield Sample(f"kvcache_{noun}s_total", labels, int(ended[code]))
        yield Sample(f"kvcache_{noun}_objects_total", (), totals[f"{noun}_objects"])
        yield Sample(f"kvcache_{noun}_bytes_total", (), totals[f"{noun}_bytes"])
        yield Distribution(f"kvcache_{noun}_duration_seconds", (), *view.histograms[noun])
    yield from _failures(view)
    for name, place in _RATES:
        yield Sample(name, (), int(view.meta[place]))


def _failures(view: View) -> Iterator[Sample]:
    """The usual reasons stand there from the start, so that the first failure is a rise."""
    for tier, reasons in enumerate(view.tier_failures):
        is_known = 1 <= tier <= len(view.tier_names)
        usual = {int(reason) for reason in _USUAL_FAILURES} if is_known else set()
        for code in sorted(usual | set(np.flatnonzero(reasons).tolist())):
            if code in REASON_NAMES:
                labels = (view.tier_name(tier), REASON_NAMES[code])
                yield Sample("kvcache_tier_failures_total", labels, int(reasons[code]))

"""Reads the metrics of :mod:`..metrics.drift`."""

from collections.abc import Iterator

import numpy as np

from kvstrata.core.events import EventType, Reason

from ..metrics.labels import REASON_NAMES
from .sample import Sample
from .view import View

__all__ = ["read_drift"]


def read_drift(view: View) -> Iterator[Sample]:
    """Values of the metrics of drift, scrubbing and operator commands."""
    totals = view.totals
    different = totals["digests_differed"]
    yield Sample("kvcache_drift_total", ("projection",), different)
    yield Sample("kvcache_drift_total", ("bytes",), totals["scrub_bad_pages"])
    yield Sample("kvcache_drift_total", ("numeric",), totals["numeric_drifted"])
    equal = totals["digests_compared"] - different
    yield Sample("kvcache_projection_digests_total", ("different",), different)
    yield Sample("kvcache_projection_digests_total", ("equal",), equal)
    yield Sample("kvcache_scrubbed_pages_total", (), totals["scrubbed_pages"])
    yield Sample("kvcache_scrubbed_bytes_total", (), totals["scrubbed_bytes"])
    yield Sample("kvcache_scrub_bad_pages_total", (), totals["scrub_bad_pages"])
    for (group, layer), found in sorted(view.numeric.items()):
        labels = (*view.pool_labels(group), str(layer))
        samples, drifted, max_abs, cosine, _ = found
        yield Sample("kvcache_numeric_samples_total", (*labels, "different"), drifted)
        yield Sample("kvcache_numeric_samples_total", (*labels, "equal"), samples - drifted)
        yield Sample("kvcache_numeric_max_abs_difference", labels, max_abs)
        yield Sample("kvcache_numeric_cosine_similarity", labels, cosine)
    ended = view.counts[EventType.COMMAND_ENDED].sum(axis=0)
    for code in sorted({int(Reason.NONE), *np.flatnonzero(ended).tolist()}):
        if code in REASON_NAMES:
            yield Sample("kvcache_commands_total", (REASON_NAMES[code],), int(ended[code]))

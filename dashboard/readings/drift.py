"""Reads the metrics of :mod:`..metrics.drift`."""

from collections.abc import Iterator

from kvstrata.core.events import EventType, Reason

from .sample import Sample
from .view import View

__all__ = ["read_drift"]


def read_drift(view: View) -> Iterator[Sample]:
    """Values of the metrics of drift, scrubbing and operator commands."""
    totals = view.totals
    bad_bytes = int(view.counts[EventType.VALIDATION_FAILED, :, Reason.CHECKSUM_MISMATCH].sum())
    equal, different = view.digests
    yield Sample("kvcache_drift_total", ("projection",), view.drifts_found)
    yield Sample("kvcache_drift_total", ("bytes",), bad_bytes)
    yield Sample("kvcache_drift_total", ("numeric",), totals["numeric_drifts"])
    yield Sample("kvcache_projection_digests_total", ("different",), different)
    yield Sample("kvcache_projection_digests_total", ("equal",), equal)
    yield Sample("kvcache_scrubbed_pages_total", (), totals["scrubbed_pages"])
    yield Sample("kvcache_scrubbed_bytes_total", (), totals["scrubbed_bytes"])
    yield Sample("kvcache_scrub_bad_pages_total", (), totals["scrub_bad_pages"])
    for (group, layer), found in sorted(view.numeric.items()):
        labels = (*view.pool_labels(group), str(layer))
        within = found.samples - found.drifted
        yield Sample("kvcache_numeric_samples_total", (*labels, "different"), found.drifted)
        yield Sample("kvcache_numeric_samples_total", (*labels, "equal"), within)
        yield Sample("kvcache_numeric_max_abs_difference", labels, found.max_abs)
        yield Sample("kvcache_numeric_cosine_similarity", labels, found.cosine)
    ended = int(view.counts[EventType.COMMAND_ENDED].sum())
    yield Sample("kvcache_commands_total", (), ended)

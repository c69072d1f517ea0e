"""The exporter: reads every metric of the catalogue when it is scraped, and keeps none.

Nothing here is on the engine's path: values come from a follower's tally and tables and from the
status page, so they are exact after a restart of engine or follower.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Final

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.core import Metric as Family
from prometheus_client.registry import Collector

from .metrics import METRICS, Metric
from .readings import (
    Distribution,
    IndexLag,
    Sample,
    StatusCounters,
    read_drift,
    read_engine,
    read_follower,
    read_pools,
    read_requests,
    read_status,
    read_tiers,
    take_view,
)

if TYPE_CHECKING:
    from kvstrata.eventstore.history.follower import Follower

__all__ = ["CONTENT_TYPE", "Exporter", "render"]

CONTENT_TYPE: Final = "text/plain; version=0.0.4; charset=utf-8"
"""Media type of what :meth:`Exporter.render` gives."""


class Exporter(Collector):
    """Serves one follower's metrics; keep it as long as the follower.

    It carries the counts of the status page over incarnations, so that they never fall.

    Args:
        follower: what is served.
        index_lag_interval_s: seconds between two looks at the stamps of indexes' pages.
    """

    def __init__(self, follower: Follower, index_lag_interval_s: float = 5.0) -> None:
        self._follower = follower
        self._counters = StatusCounters()
        self._index_lag = IndexLag(index_lag_interval_s)
        self._lock = threading.Lock()
        self._registry = CollectorRegistry(auto_describe=False)
        self._registry.register(self)

    def render(self) -> bytes:
        """The metrics in Prometheus' text format."""
        return generate_latest(self._registry)

    def describe(self) -> Iterable[Family]:
        """The families, without values: registering reads nothing."""
        return [_family(metric, []) for metric in METRICS.values()]

    def collect(self) -> Iterator[Family]:
        """The families with their values now."""
        with self._lock:
            began_s = time.thread_time()
            samples: dict[str, list[Sample | Distribution]] = {name: [] for name in METRICS}
            for sample in self._samples():
                samples[sample.metric].append(sample)
            took_s = time.thread_time() - began_s
        name = "kvcache_exporter_scrape_seconds"
        samples[name].append(Sample(name, (), took_s))
        for name, metric in METRICS.items():
            yield _family(metric, samples[name])

    def _samples(self) -> Iterator[Sample | Distribution]:
        follower = self._follower
        position = follower.position()
        yield from read_follower(position)
        yield from read_status(follower.status(), self._counters)
        if not position.replayed:
            return  # counts below what was shown before this follower began would be falls
        view = take_view(follower, self._index_lag)
        yield from read_pools(view)
        yield from read_requests(view)
        yield from read_tiers(view)
        yield from read_drift(view)
        yield from read_engine(view)


def render(follower: Follower) -> bytes:
    """The metrics of a follower, once; a service keeps an :class:`Exporter` instead."""
    return Exporter(follower).render()


def _family(metric: Metric, samples: list[Sample | Distribution]) -> Family:
    if metric.type == "histogram":
        return _histogram(metric, samples)
    kind = CounterMetricFamily if metric.type == "counter" else GaugeMetricFamily
    family: CounterMetricFamily | GaugeMetricFamily = kind(
        metric.name, metric.help, labels=metric.labels
    )
    for sample in samples:
        if isinstance(sample, Sample):
            family.add_metric(sample.labels, sample.value)
    return family


def _histogram(metric: Metric, samples: list[Sample | Distribution]) -> HistogramMetricFamily:
    family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
    bounds = [*(repr(bound) for bound in metric.buckets), "+Inf"]
    for sample in samples:
        if isinstance(sample, Distribution):
            buckets = list(zip(bounds, accumulate(sample.counts), strict=True))
            family.add_metric(sample.labels, buckets, sample.total)
    return family

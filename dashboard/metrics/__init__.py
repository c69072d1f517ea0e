"""The catalogue of metrics: every name, its type, unit, labels, meaning and source."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kvstrata.core.errors import ConfigError

from .drift import DRIFT_METRICS
from .engine import ENGINE_METRICS
from .labels import LABELS, Label
from .metric import PREFIX, Metric
from .pools import POOL_METRICS
from .requests import REQUEST_METRICS
from .tiers import TIER_METRICS

__all__ = ["LABELS", "METRICS", "PREFIX", "SECTIONS", "Label", "Metric", "metric_of_series"]

SECTIONS: Final = (
    ("Pools, pages and tiers' contents", POOL_METRICS),
    ("Requests and admission", REQUEST_METRICS),
    ("Loads and spills", TIER_METRICS),
    ("Drift and scrubbing", DRIFT_METRICS),
    ("Log, engine and follower", ENGINE_METRICS),
)
"""All metrics, as docs/metrics.md shows them."""


def _by_name() -> Mapping[str, Metric]:
    metrics = [metric for _, section in SECTIONS for metric in section]
    names = [metric.name for metric in metrics]
    if len(set(names)) != len(names):
        raise ConfigError(f"metrics: expected names of their own, found {sorted(names)}")
    return MappingProxyType({metric.name: metric for metric in metrics})


METRICS: Final = _by_name()
"""Every metric by its name."""


def metric_of_series(series: str) -> Metric:
    """The metric whose series has this name in Prometheus.

    Raises:
        KeyError: no metric of the catalogue has such a series.
    """
    for metric in METRICS.values():
        if series in metric.series_names:
            return metric
    raise KeyError(series)

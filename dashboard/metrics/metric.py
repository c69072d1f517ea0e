"""What one metric is."""

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from kvstrata.core.errors import ConfigError

from .labels import LABELS

__all__ = ["PREFIX", "Metric", "MetricType", "Source"]

PREFIX: Final = "kvcache_"
MetricType = Literal["counter", "gauge", "histogram"]
Source = Literal["event log", "tables", "status page", "follower", "exporter"]
"""Where a value is read: the tally of all events, the follower's tables, the page that the engine's
writer keeps in shared memory, the follower's own state, or the exporter itself."""

_NAME: Final = re.compile(r"kvcache_[a-z][a-z0-9_]*[a-z0-9]")
_BASE_UNITS: Final = (
    "blocks",
    "bytes",
    "bytes_per_second",
    "events",
    "pages",
    "ratio",
    "requests",
    "seconds",
    "tokens",
    "tokens_per_second",
)
"""Units that a name must end in, ahead of ``_total``."""
_PLAIN: Final = "1"
_SUFFIXES: Final = ("_bucket", "_count", "_sum", "_created", "_info_total")


@dataclass(frozen=True)
class Metric:
    """One metric of the catalogue.

    Attributes:
        name: begins with ``kvcache_``; a counter's ends in ``_total``.
        type: counter, gauge or histogram.
        unit: base unit, which the name ends in; "1" for a flag or a plain number, whose name says
            what is counted.
        labels: names out of :data:`.labels.LABELS`.
        help: one sentence without a full stop.
        source: where it is read.
        buckets: upper bounds of a histogram, in its unit; set where the metric is a histogram.

    Raises:
        ConfigError: the name breaks a rule, or a label is unknown.
    """

    name: str
    type: MetricType
    unit: str
    labels: tuple[str, ...]
    help: str
    source: Source
    buckets: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        self._expect(_NAME.fullmatch(self.name), "a name of kvcache_, a-z, 0-9 and _", self.name)
        self._expect(self.type in get_args(MetricType), "a known type", self.type)
        self._expect(self.source in get_args(Source), "a known source", self.source)
        is_counter = self.type == "counter"
        self._expect(
            self.name.endswith("_total") == is_counter, "_total at the end of counters only", "not"
        )
        stem = self.name.removesuffix("_total")
        self._expect(
            not stem.endswith(_SUFFIXES), "no suffix that the text format keeps for itself", stem
        )
        if self.unit in _BASE_UNITS:
            self._expect(stem.endswith(f"_{self.unit}"), f"a name that ends in {self.unit}", stem)
        else:
            known = ", ".join((*_BASE_UNITS, _PLAIN))
            self._expect(self.unit == _PLAIN, f"a unit out of {known}", self.unit)
        unknown = [label for label in self.labels if label not in LABELS]
        self._expect(not unknown, f"labels out of {', '.join(LABELS)}", unknown)
        self._expect(bool(self.help) and self.help[-1] != ".", "help without a full stop", "other")
        self._expect(
            bool(self.buckets) == (self.type == "histogram")
            and list(self.buckets) == sorted(set(self.buckets)),
            "ascending buckets for histograms, none for others",
            self.buckets,
        )

    def _expect(self, holds: object, expected: str, found: object) -> None:
        if not holds:
            raise ConfigError(f"metric {self.name}: expected {expected}, found {found!r}")

    @property
    def series_names(self) -> tuple[str, ...]:
        """Names under which Prometheus stores it."""
        if self.type != "histogram":
            return (self.name,)
        return tuple(f"{self.name}{suffix}" for suffix in ("_bucket", "_sum", "_count"))

"""A scrape, read back."""

from __future__ import annotations

from dataclasses import dataclass

from prometheus_client.parser import text_string_to_metric_families

from kvstrata.dashboard.exporter import Exporter
from kvstrata.dashboard.metrics import METRICS

Series = tuple[str, tuple[tuple[str, str], ...]]


@dataclass(frozen=True)
class Scrape:
    """The series of one scrape by name and labels."""

    series: dict[Series, float]

    @classmethod
    def of(cls, exporter: Exporter) -> Scrape:
        return cls.read(exporter.render().decode())

    @classmethod
    def read(cls, text: str) -> Scrape:
        found: dict[Series, float] = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                series = sample.name, tuple(sorted(sample.labels.items()))
                assert series not in found, f"{series} is there twice"
                found[series] = sample.value
        return cls(found)

    def __getitem__(self, wanted: str | tuple[str, dict[str, str]]) -> float:
        name, labels = (wanted, {}) if isinstance(wanted, str) else wanted
        return self.series[name, tuple(sorted(labels.items()))]

    def by(self, name: str, label: str) -> dict[str, float]:
        """Sums of a metric's values by one label."""
        found: dict[str, float] = {}
        for (series, labels), value in self.series.items():
            if series == name:
                key = dict(labels)[label]
                found[key] = found.get(key, 0.0) + value
        return found

    def names(self) -> set[str]:
        return {name for name, _ in self.series}

    def growing(self) -> dict[Series, float]:
        """The series that must never fall: counters, and all of histograms."""
        names = {
            series
            for metric in METRICS.values()
            if metric.type != "gauge"
            for series in metric.series_names
        }
        return {series: value for series, value in self.series.items() if series[0] in names}

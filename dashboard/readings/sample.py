"""Values of metrics, as read."""

from collections.abc import Sequence
from typing import NamedTuple

__all__ = ["Distribution", "Sample"]


class Sample(NamedTuple):
    """One value.

    Attributes:
        metric: its name in the catalogue.
        labels: values of the metric's labels, in the catalogue's order.
        value: in the metric's unit.
    """

    metric: str
    labels: tuple[str, ...]
    value: float


class Distribution(NamedTuple):
    """One histogram.

    Attributes:
        metric: its name in the catalogue.
        labels: values of the metric's labels, in the catalogue's order.
        counts: observations by bucket, not cumulative; the last is of those above all bounds.
        total: sum of all observations, in the metric's unit.
    """

    metric: str
    labels: tuple[str, ...]
    counts: Sequence[int]
    total: float

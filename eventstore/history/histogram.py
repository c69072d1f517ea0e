"""Histograms with fixed buckets, as a scrape gives them."""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from kvstrata.core.errors import ConfigError

__all__ = [
    "AGE_BOUNDS_SECONDS",
    "LENGTH_BOUNDS_TOKENS",
    "RECOVERY_BOUNDS_SECONDS",
    "WAIT_BOUNDS_SECONDS",
    "Histogram",
]

LENGTH_BOUNDS_TOKENS: Final = (
    *(0.0, 128.0, 512.0, 2048.0, 8192.0, 32768.0, 131072.0, 524288.0, 1048576.0),
)
WAIT_BOUNDS_SECONDS: Final = (0.001, 0.005, 0.02, 0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
AGE_BOUNDS_SECONDS: Final = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0, 14400.0, 86400.0)
RECOVERY_BOUNDS_SECONDS: Final = (0.1, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0)


class Histogram:
    """Observations by bucket.

    The sum is kept in whole steps, so that it comes out the same however the observations were cut
    into batches, and never falls.

    Args:
        bounds: upper bounds of the buckets, ascending; a value equal to a bound lies below it.
        step: what one unit of an observed integer is worth in the unit of the bounds: 1 for
            tokens, 1e-9 for seconds observed in nanoseconds.

    Attributes:
        counts: int64[len(bounds) + 1], observations by bucket, not cumulative; the last one is of
            those above all bounds.
        steps: sum of all observations, in steps.
    """

    def __init__(self, bounds: tuple[float, ...], step: float = 1.0) -> None:
        if list(bounds) != sorted(set(bounds)) or not bounds:
            raise ConfigError(f"bounds: expected ascending ones, found {bounds}")
        self.bounds = bounds
        self.step = step
        self.counts: npt.NDArray[np.int64] = np.zeros(len(bounds) + 1, dtype=np.int64)
        self.steps = 0

    @property
    def sum(self) -> float:
        """Sum of all observations, in the unit of the bounds."""
        return self.steps * self.step

    @property
    def count(self) -> int:
        """How many observations."""
        return int(self.counts.sum())

    def observe(self, steps: npt.NDArray[np.int64]) -> None:
        """Add observations, int64[n] in steps, none negative."""
        if len(steps):
            places = np.searchsorted(self.bounds, steps * self.step, side="left")
            self.counts += np.bincount(places, minlength=len(self.counts))
            self.steps += int(steps.sum())

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {"counts": self.counts.tolist(), "steps": self.steps}

    def restore(self, stored: dict[str, Any]) -> None:
        """Take up what :meth:`to_json` gave.

        Raises:
            ValueError: it is of other buckets.
        """
        counts = np.array(stored["counts"], dtype=np.int64)
        if counts.shape != self.counts.shape:
            raise ValueError(f"expected {len(self.counts)} buckets, found {counts.shape}")
        self.counts, self.steps = counts, int(stored["steps"])

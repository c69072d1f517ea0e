"""A sealed page beside what the engine computed again for it."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from kvstrata.core.errors import ConfigError

__all__ = ["Comparison"]


@dataclass(frozen=True)
class Comparison:
    """One layer's part of one page, compared.

    Attributes:
        group: name of the group.
        slot: of the page.
        layer: of the model.
        entries: compared.
        max_abs: the largest difference of an element.
        cosine: between what is stored and what was computed, 1.0 where both are all zeros.
        tolerance: the largest difference that is no drift.

    Raises:
        ConfigError: a count or the tolerance is negative.
    """

    group: str
    slot: int
    layer: int
    entries: int
    max_abs: float
    cosine: float
    tolerance: float

    def __post_init__(self) -> None:
        if self.layer < 0 or self.entries < 0 or not self.tolerance >= 0:
            raise ConfigError(
                "comparison: expected a layer, entries and a tolerance of at least 0, found "
                f"{self.layer}, {self.entries} and {self.tolerance}"
            )

    @property
    def drifted(self) -> bool:
        """Whether they differ by more than the tolerance, or one is not a number."""
        return not self.max_abs <= self.tolerance or not math.isfinite(self.cosine)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)

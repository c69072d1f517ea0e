"""Durations in PromQL, and rules that run on a shorter scale of time, for tests."""

import re
from dataclasses import dataclass
from typing import Final

from kvstrata.core.errors import ConfigError

__all__ = ["REAL_TIME", "TimeScale", "seconds_of"]

_SECONDS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_WINDOW: Final = re.compile(r"\[(\d+[smhd])\]")
_OFFSET: Final = re.compile(r"offset (\d+[smhd])")
_AGE: Final = re.compile(r"(_lag_seconds > )(\d+)")


def seconds_of(duration: str) -> int:
    """Seconds of a duration such as ``5m``."""
    return int(duration[:-1]) * _SECONDS[duration[-1]]


@dataclass(frozen=True)
class TimeScale:
    """How much shorter than written every duration of a rule is.

    Attributes:
        factor: what durations are multiplied with; 1 leaves them as they are.
        least_window_s: no range is made shorter, since it has to hold some scrapes.
        evaluation: interval between two evaluations of the rules.

    Raises:
        ConfigError: a factor that is not in (0, 1].
    """

    factor: float = 1.0
    least_window_s: float = 0.0
    evaluation: str = "15s"

    def __post_init__(self) -> None:
        if not 0 < self.factor <= 1:
            raise ConfigError(f"time scale: expected a factor in (0, 1], found {self.factor}")

    def duration(self, text: str) -> str:
        """One duration on this scale."""
        return text if self.factor == 1 else self._millis(text, 0)

    def expression(self, promql: str) -> str:
        """An expression with its ranges, offsets and limits of lags on this scale."""
        if self.factor == 1:
            return promql
        promql = _WINDOW.sub(lambda found: f"[{self._window(found[1])}]", promql)
        promql = _AGE.sub(lambda found: f"{found[1]}{int(found[2]) * self.factor:g}", promql)
        return _OFFSET.sub(lambda found: f"offset {self._millis(found[1], 0.001)}", promql)

    def _window(self, text: str) -> str:
        return self._millis(text, self.least_window_s)

    def _millis(self, text: str, least_s: float) -> str:
        return f"{round(max(seconds_of(text) * self.factor, least_s) * 1000)}ms"


REAL_TIME: Final = TimeScale()
"""Durations as they are written."""

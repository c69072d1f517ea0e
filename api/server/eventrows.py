"""Events of the log as rows of the API."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import numpy as np
import numpy.typing as npt

from ..events import describe
from .views.words import finite

__all__ = ["event_rows", "when"]


def event_rows(
    events: npt.NDArray[np.void], wall_ns: npt.NDArray[np.int64], groups: Sequence[str]
) -> list[dict[str, Any]]:
    """A row for each event.

    Args:
        events: EVENT_DTYPE[n].
        wall_ns: int64[n], when they happened.
        groups: names of the layout's groups by id.
    """
    names = tuple(groups)
    return [_row(event, int(at_ns), names) for event, at_ns in zip(events, wall_ns, strict=True)]


def _row(event: np.void, at_ns: int, groups: tuple[str, ...]) -> dict[str, Any]:
    fields = describe(event, groups)
    fields.pop("time_ns")
    payload = {name: finite(value) for name, value in fields.pop("payload").items()}
    time = when(at_ns / 1e9)
    return {**fields, "time": time, "tier": int(event["tier"]), "payload": payload}


def when(time_s: float) -> datetime:
    """A time of the Unix epoch in UTC."""
    return datetime.fromtimestamp(time_s, UTC)

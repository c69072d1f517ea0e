"""Which fault comes next, and when."""

from __future__ import annotations

from enum import Enum
from itertools import cycle
from typing import Final

from kvstrata import Kind

__all__ = ["Fault", "FaultPlan"]

_KINDS: Final = (Kind.COMPRESSED, Kind.SWA, Kind.INDEXER, Kind.TAIL)
_AGAIN_S: Final = 0.25


class Fault(Enum):
    """What is done to a load on purpose."""

    PAGE = "a byte flipped in a sealed page"
    OBJECT = "a byte flipped in a stored object"
    KILL = "the engine killed"


class FaultPlan:
    """The faults in turn, so many seconds apart; one that finds nothing to damage is tried again.

    Args:
        every_s: seconds between two; None for no faults.
        has_folder: whether stored objects are files that can be damaged.
        now_s: of a clock that never goes back.
    """

    def __init__(self, every_s: float | None, has_folder: bool, now_s: float) -> None:
        self._every_s = every_s
        faults = [fault for fault in Fault if has_folder or fault is not Fault.OBJECT]
        self._faults = cycle(faults)
        self._kinds = cycle(_KINDS)
        self._next = next(self._faults)
        self._next_s = now_s + (every_s or 0.0)
        self._is_under_way = False

    def due(self, now_s: float) -> Fault | None:
        """The fault to inject now; until it is told done or not, no other."""
        if self._every_s is None or self._is_under_way or now_s < self._next_s:
            return None
        self._is_under_way = True
        return self._next

    def kind(self) -> Kind:
        """Of the page to damage next."""
        return next(self._kinds)

    def done(self, now_s: float) -> None:
        """The fault is there; the next one is another."""
        if self._every_s is not None:
            self._next_s = now_s + self._every_s
        self._next = next(self._faults)
        self._is_under_way = False

    def not_yet(self, now_s: float) -> None:
        """There was nothing to damage, or nobody to do it."""
        self._next_s = max(self._next_s, now_s + _AGAIN_S)
        self._is_under_way = False

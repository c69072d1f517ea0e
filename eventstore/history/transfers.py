"""Loads and spills in flight, and who waits to be admitted, as of the last event."""

from typing import Any, ClassVar, Final

from kvstrata.core.events import EventType

__all__ = ["Transfers"]

_LOW: Final = 0xFFFF_FFFF
_LOAD_BEGUN: Final = int(EventType.LOAD_BEGUN)
_LOAD_ENDED: Final = int(EventType.LOAD_ENDED)
_SPILL_BEGUN: Final = int(EventType.SPILL_BEGUN)
_SPILL_ENDED: Final = int(EventType.SPILL_ENDED)
_ADMISSION: Final = (
    int(EventType.ADMISSION_GRANTED),
    int(EventType.ADMISSION_DEFERRED),
    int(EventType.ADMISSION_DENIED),
)


class Transfers:
    """What is under way in the engine's present life."""

    KINDS: ClassVar = (_LOAD_BEGUN, _LOAD_ENDED, _SPILL_BEGUN, _SPILL_ENDED, *_ADMISSION)

    def __init__(self) -> None:
        self._loads: dict[int, int] = {}
        self._spills: set[int] = set()
        self._waiting = 0

    def reset(self) -> None:
        """Another life began: nothing is under way."""
        self._loads.clear()
        self._spills.clear()
        self._waiting = 0

    def add(self, kind: int, words: list[int]) -> None:
        """One event of :attr:`KINDS`, its eight words."""
        if kind == _LOAD_BEGUN:
            self._loads[words[4]] = words[6]
        elif kind == _LOAD_ENDED:
            self._loads.pop(words[4], None)
        elif kind == _SPILL_BEGUN:
            self._spills.add(words[4])
        elif kind == _SPILL_ENDED:
            self._spills.discard(words[4])
        else:
            self._waiting = (words[5] >> 32) & _LOW

    def in_flight(self) -> dict[str, int]:
        """Counts by name."""
        return {
            "loads": len(self._loads),
            "load_bytes": sum(self._loads.values()),
            "spills": len(self._spills),
            "waiting": self._waiting,
        }

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        loads = [[load, num_bytes] for load, num_bytes in self._loads.items()]
        return {"loads": loads, "spills": sorted(self._spills), "waiting": self._waiting}

    def restore(self, stored: dict[str, Any]) -> None:
        """Take up what :meth:`to_json` gave."""
        self._loads = {int(load): int(num_bytes) for load, num_bytes in stored["loads"]}
        self._spills = {int(one) for one in stored["spills"]}
        self._waiting = int(stored["waiting"])

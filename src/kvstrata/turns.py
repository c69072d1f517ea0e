"""Turns: who begins a load next, where as many run as may; first come, first served."""

import weakref
from collections.abc import Callable
from typing import Final

from kvstrata.core.errors import Deferred

from .requests import Request

__all__ = ["Turns"]

_PATIENCE_S: Final = 1.0
"""Who has not asked for so long is passed."""
_WAIT_S: Final = 0.02


class Turns:
    """The requests that wait to begin a load of their own.

    Args:
        most: loads that may own pages at once.
        clock: seconds that never go back.
    """

    def __init__(self, most: int, clock: Callable[[], float]) -> None:
        self._most = most
        self._clock = clock
        self._waiting: dict[int, tuple[weakref.ref[Request], float]] = {}

    def take(self, request: Request, running: int) -> None:
        """Take a turn.

        Args:
            request: that wants to load.
            running: loads that own pages now.

        Raises:
            Deferred: it is not this request's turn; it keeps its place.
        """
        free = self._most - running
        if free > 0 and not self._waiting:
            return
        now_s, ahead = self._clock(), 0
        for key, (other, asked_s) in list(self._waiting.items()):
            found = other()
            if found is request:
                break
            if found is None:
                del self._waiting[key]
            elif now_s - asked_s <= _PATIENCE_S:
                ahead += 1
        if ahead < free:
            self._waiting.pop(id(request), None)
            return
        self._waiting[id(request)] = weakref.ref(request), now_s
        raise Deferred(
            f"{running} loads own pages, expected fewer than {self._most}: match again in "
            f"{_WAIT_S:g} s",
            _WAIT_S,
            ahead,
            "loads",
        )

    def leave(self, request: Request) -> None:
        """A request does not want to load any more."""
        found = self._waiting.get(id(request))
        if found is not None and found[0]() is request:
            del self._waiting[id(request)]

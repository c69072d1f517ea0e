"""Calls into the core: one thread, room in the ring first, and an end after a violation."""

import threading
import time
from collections.abc import Callable
from typing import Any, Final, NoReturn, Protocol

import numpy as np

from kvstrata.core.errors import InvariantViolation
from kvstrata.core.events import EventType
from kvstrata.core.finish import drain_limbo
from kvstrata.core.quarantine import note
from kvstrata.core.refusals import refusal_text
from kvstrata.core.ring import (
    RING_DRAINED,
    RING_FLAG_POISONED,
    RING_FLAG_UNLOGGED,
    RING_FLAGS,
    RING_STALLS,
)
from kvstrata.core.room import MORE, REFUSED, RING_FULL
from kvstrata.core.words import (
    META_REFUSAL,
    Arena,
)

__all__ = ["CoreCaller", "LogEnd", "zeros"]

_LOOK_S: Final = 0.0002


class LogEnd(Protocol):
    """What ends a log's epoch when the writer is dead or stalled."""

    def end_epoch(self, reason: str) -> None:
        """Mark the log unlogged until it is closed."""


class CoreCaller:
    """Runs compiled calls for one manager.

    Args:
        arena: the manager's arena.
        ring: its ring.
        log: the event log behind the ring, if any.
        stall_limit_ms: how long a full ring may stay full.
    """

    def __init__(
        self, arena: Arena, ring: Arena, log: LogEnd | None, stall_limit_ms: float
    ) -> None:
        self.arena = arena
        self.ring = ring
        self._log = log
        self._stall_limit_s = stall_limit_ms / 1e3
        self._thread = threading.get_ident()
        self._ended: str | None = None

    def check(self) -> None:
        """Refuse a call from another thread, or after the end.

        Raises:
            InvariantViolation: says which.
        """
        if threading.get_ident() == self._thread and self._ended is None:
            return
        if not self.may_mutate():
            raise InvariantViolation(f"the manager mutates no more: {self._ended}")

    def may_mutate(self) -> bool:
        """Whether no end has come.

        Raises:
            InvariantViolation: another thread asks.
        """
        if threading.get_ident() != self._thread:
            raise InvariantViolation(
                "expected the thread that opened the manager, found another: one thread mutates; "
                "hand the work to it through a queue"
            )
        return self._ended is None

    def end(self, why: str) -> None:
        """Refuse every later call."""
        self._ended = why

    def interrupted(self, verb: str, error: BaseException) -> None:
        """End after something broke off inside a call that had begun to change state."""
        if self._ended is None:
            self._ended = f"{verb} was interrupted by {type(error).__name__}; open it again"

    def violated(self, found: list[str]) -> NoReturn:
        """End after laws were found broken.

        Raises:
            InvariantViolation: names them.
        """
        self._ended = "; ".join(found[:10])
        if self._log is not None:
            self._log.end_epoch("invariant violation")
        raise InvariantViolation(self._ended)

    def run(self, function: Callable[..., int], *arguments: Any) -> int:
        """Run a compiled call until it did something; the time is added as last argument.

        Returns:
            The call's code, never RING_FULL.

        Raises:
            InvariantViolation: apply refused an event.
        """
        code = int(function(*arguments, time.monotonic_ns()))
        if code == RING_FULL:
            code = self._wait_for_room(function, arguments)
        if code == REFUSED:
            self._refused(function)
        return code

    def note(
        self, kind: EventType, payload: Arena, reason: int = 0, group: int = 0, page: int = 0
    ) -> None:
        """Log an event that moves no page; payload int64[4]."""
        self.run(note, self.arena, self.ring, int(kind), group, page, int(reason), payload)

    def drain_limbo(self, code: int) -> None:
        """Finish a call that was cut while it freed units."""
        while code == MORE:
            code = self.run(drain_limbo, self.arena, self.ring)

    def _refused(self, function: Callable[..., int]) -> None:
        name = getattr(function, "__name__", str(function))
        why = refusal_text(int(self.arena[META_REFUSAL]))
        self._ended = f"{name}: an event was refused: {why}"
        if self._log is not None:
            self._log.end_epoch("invariant violation")
        raise InvariantViolation(self._ended)

    def _wait_for_room(self, function: Callable[..., int], arguments: tuple[Any, ...]) -> int:
        """Wait outside compiled code while the writer drains; give the log up when it does not.

        Patience is counted in looks, not by the clock: where the whole process stood still, the
        writer is not to blame. A poisoned log will never drain: no patience at all.
        """
        self.ring[RING_STALLS] += 1
        drained = int(self.ring[RING_DRAINED])
        waited_s = 0.0
        while True:
            if self.ring[RING_FLAGS] & RING_FLAG_POISONED or waited_s > self._stall_limit_s:
                if self._log is None or self.ring[RING_FLAGS] & RING_FLAG_UNLOGGED:
                    raise InvariantViolation("a ring that no log drains is full")
                self._log.end_epoch("the ring is full and the writer does not drain it")
            time.sleep(_LOOK_S)
            code = int(function(*arguments, time.monotonic_ns()))
            if code != RING_FULL:
                return code
            now = int(self.ring[RING_DRAINED])
            waited_s = waited_s + _LOOK_S if now == drained else 0.0
            drained = now


def zeros(*shape: int) -> Arena:
    """An int64 array for compiled calls."""
    return np.zeros(shape, dtype=np.int64)

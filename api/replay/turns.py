"""Whose turn it is: the order in which a trace's requests begin."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from ..traces import Trace, TraceRequest

__all__ = ["Turn", "Turns"]


@dataclass(frozen=True)
class Turn:
    """One request's turn: its session and its place in it."""

    session: int
    place: int


class Turns:
    """Hands out a trace's requests in a closed loop.

    So many sessions are open at once; the next request of one comes only after the one before has
    ended, and a session that is through makes room for the next. The order depends on nothing but
    the order in which requests end, so that it can be told again from the log.

    Args:
        trace: the trace.
        open_sessions: at once.
    """

    def __init__(self, trace: Trace, open_sessions: int) -> None:
        self._sessions = trace.sessions
        self._waiting = deque(range(len(trace.sessions)))
        self._ready: deque[Turn] = deque()
        for _ in range(min(open_sessions, len(self._waiting))):
            self._open()

    def first(self) -> Turn | None:
        """Whose turn it is, or None until another ends."""
        return self._ready[0] if self._ready else None

    def next(self) -> Turn | None:
        """The same, and it is taken."""
        return self._ready.popleft() if self._ready else None

    def request(self, turn: Turn) -> TraceRequest:
        """The request whose turn it is."""
        return self._sessions[turn.session][turn.place]

    def ended(self, turn: Turn) -> None:
        """It ended: the next of its session is ready, at the back."""
        if turn.place + 1 < len(self._sessions[turn.session]):
            self._ready.append(Turn(turn.session, turn.place + 1))
        else:
            self._open()

    def put_back(self, turns: list[Turn]) -> None:
        """They broke off: they come first, in this order."""
        self._ready.extendleft(reversed(turns))

    def _open(self) -> None:
        if self._waiting:
            self._ready.append(Turn(self._waiting.popleft(), 0))

"""The demo's hold on its engine process: start, talk, kill, and never leave one behind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Self, TypeVar

from kvstrata import InvariantViolation, Kind

from ..children import ConnectedProcess
from . import messages as m

if TYPE_CHECKING:
    from kvstrata import Recovery

__all__ = ["EngineProcess"]

_Answer = TypeVar("_Answer")
_CLOSE_TIMEOUT_S = 10


class EngineProcess(ConnectedProcess):
    """An engine in a process of its own, killed when its ``with`` ends."""

    def __init__(self) -> None:
        super().__init__("kvstrata.api.demo.engine")

    def open(self, command: m.Open) -> Recovery | None:
        """Open a manager in it; returns what the manager recovered.

        Raises:
            KvstrataError: the manager refused.
            InvariantViolation: the engine died.
        """
        return self._ask(command, m.Opened).recovery

    def serve(self, command: m.Serve, on_step: Callable[[m.StepBegun], None]) -> m.Served:
        """Have a request served.

        Args:
            command: the request.
            on_step: called at each step's beginning.
        """
        self._connection.send(command)
        while True:
            message = self._receive()
            if not isinstance(message, m.StepBegun):
                return self._expect(message, m.Served)
            on_step(message)

    def kill_inside_step(
        self, command: m.Serve, on_step: Callable[[m.StepBegun], None]
    ) -> list[m.StepBegun]:
        """Have a request served up to the middle of ``stop_in_step``, then kill the process.

        Returns:
            The steps that had begun; the last was in flight.
        """
        steps: list[m.StepBegun] = []
        self._connection.send(command)
        while isinstance(message := self._receive(), m.StepBegun):
            steps.append(message)
            on_step(message)
        self._expect(message, m.InsideStep)
        self.kill()
        return steps

    def find(self, kind: Kind, prompt: m.Tokens, max_resume: int | None = None) -> m.Place:
        """Find a byte that a request would reuse, in a page of the kind."""
        return self._ask(m.Find(kind, prompt, max_resume), m.Place)

    def flip(self, place: m.Place) -> None:
        """Flip a byte behind the manager's back; once more restores it."""
        self._ask(m.Flip(place), m.Done)

    def match(self, prompt: m.Tokens) -> m.Matched:
        """Where a request would resume."""
        return self._ask(m.Match(prompt), m.Matched)

    def settle(self) -> m.Tiered:
        """Wait until all that was sealed is stored below the device."""
        return self._ask(m.Settle(), m.Tiered)

    def flush(self) -> None:
        """Wait until everything it logged is on disk."""
        self._ask(m.Flush(), m.Done)

    def close(self) -> None:
        """Have it close its manager and end."""
        self._ask(m.Close(), m.Done)
        self._process.wait(_CLOSE_TIMEOUT_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.kill()
        self._connection.close()

    def _ask(self, command: object, expected: type[_Answer]) -> _Answer:
        with suppress(BrokenPipeError):  # that it died is said where its answer is missing
            self._connection.send(command)
        return self._expect(self._receive(), expected)

    def _receive(self) -> object:
        try:
            return self._connection.recv()
        except (EOFError, ConnectionResetError):
            code = self.kill()
            raise InvariantViolation(
                f"engine process: expected an answer, found that it ended with exit code {code}"
            ) from None

    @staticmethod
    def _expect(message: object, expected: type[_Answer]) -> _Answer:
        if isinstance(message, m.Failed):
            raise message.error
        if not isinstance(message, expected):
            raise InvariantViolation(
                f"engine process: expected {expected.__name__}, found {message!r}"
            )
        return message

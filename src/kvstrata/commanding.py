"""Operator commands: a service thread fetches them, the mutating thread carries them out.

The service thread asks a source, stores each command's words as a blob, and puts it into a bounded
queue; the mutating thread takes them at its next call, one piece a call, between COMMAND_TAKEN and
COMMAND_ENDED events; the service thread answers the source once the second is durable. Where the
source is away nothing else happens: it is asked again, ever less often.
"""

import queue
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

import numpy as np

from kvstrata.core.errors import KvstrataError, LogError
from kvstrata.core.events import EventType
from kvstrata.core.ring import RING_HEAD
from kvstrata.core.words import META_LAST_SEQNO
from kvstrata.eventstore.commands import CommandKind, CommandOutcome
from kvstrata.eventstore.log import EventLog

from .caller import zeros
from .operating import REPEATABLE, Ended, Operations, Operator

if TYPE_CHECKING:
    from .manager import CacheManager

__all__ = ["CommandSource", "Commanding", "CommandingStatus", "OfferedCommand"]

_MOST_IN_HAND: Final = 32
"""Commands fetched and not answered; more wait at their source."""
_FIRST_WAIT_S: Final = 0.5
_LONGEST_WAIT_S: Final = 30.0
_END_S: Final = 5.0


class OfferedCommand(Protocol):
    """A command as its source gives it."""

    @property
    def id(self) -> int:
        """Its number."""

    @property
    def kind(self) -> str:
        """Name of a :class:`~kvstrata.eventstore.commands.CommandKind`, in lower case."""

    @property
    def arguments(self) -> Mapping[str, Any]:
        """JSON values by name."""

    @property
    def who(self) -> str:
        """Who asked."""

    @property
    def was_begun(self) -> bool:
        """Whether an earlier life of the engine began it, and nobody knows how far it came."""


class CommandSource(Protocol):
    """Where commands come from; used by one thread that is not the mutating one."""

    def poll(self, incarnation: int, seqno: int, limit: int) -> Sequence[OfferedCommand]:
        """Commands to carry out next; each is given once in a life of the engine.

        Args:
            incarnation: this life of the engine.
            seqno: the last event now: what the log will say of them comes after.
            limit: at most so many.

        Raises:
            KvstrataError, OSError: not now; it will be asked again.
        """

    def answer(self, command: int, outcome: str, text: str, changed: int, seqno: int) -> None:
        """Say how a command ended: ``done``, ``refused`` or ``failed``. Raises as :meth:`poll`."""

    def close(self) -> None:
        """Nothing more will be asked."""


@dataclass(frozen=True)
class CommandingStatus:
    """How commands are doing.

    Attributes:
        is_reachable: whether the source answered when it was last asked.
        error: what it said otherwise.
        retry_in_s: seconds until it is asked again, where it was away.
        waiting: commands fetched that the mutating thread has not taken.
        unanswered: commands ended that the source does not know of yet.
        ended: commands ended in this life of the engine.
        is_draining: whether new requests are turned away.
    """

    is_reachable: bool
    error: str
    retry_in_s: float
    waiting: int
    unanswered: int
    ended: int
    is_draining: bool


@dataclass
class _InHand:
    """One command on its way through the mutating thread."""

    command: OfferedCommand
    kind: int
    prefix: int
    steps: Operations | None = None
    result: Any = None
    is_elsewhere: bool = False


class Commanding:
    """Takes one manager's commands from a source. Made on the mutating thread.

    Args:
        manager: the manager, with a log.
        log: its log.
        source: where commands come from; closed at the end.
        poll_s: seconds between two looks.
    """

    def __init__(
        self, manager: "CacheManager", log: EventLog, source: CommandSource, poll_s: float
    ) -> None:
        self._manager = manager
        self._call = manager._call
        self._log = log
        self._source = source
        self._poll_s = poll_s
        self.operator = Operator(manager)
        self._waiting: queue.SimpleQueue[_InHand] = queue.SimpleQueue()
        self._jobs: queue.SimpleQueue[tuple[_InHand, Callable[[], Any]] | None] = (
            queue.SimpleQueue()
        )
        self._answers: queue.SimpleQueue[tuple[int, Ended, int]] = queue.SimpleQueue()
        self._unanswered: list[tuple[int, Ended, int]] = []
        self._current: _InHand | None = None
        self._in_hand = 0
        self._num_ended = 0
        self._error = ""
        self._wait_s = 0.0
        self._next_s = 0.0
        self._is_ending = False
        self._thread = threading.Thread(target=self._serve, name="kvstrata-commands", daemon=True)
        self._thread.start()

    def status(self) -> CommandingStatus:
        """How commands are doing; from any thread."""
        return CommandingStatus(
            is_reachable=not self._error,
            error=self._error,
            retry_in_s=max(0.0, self._next_s - time.monotonic()) if self._error else 0.0,
            waiting=self._waiting.qsize(),
            unanswered=len(self._unanswered) + self._answers.qsize(),
            ended=self._num_ended,
            is_draining=self.operator.is_draining,
        )

    # the mutating thread

    def turn(self) -> None:
        """Go on with the command in hand, by one piece, or take the next."""
        current = self._current
        if current is None:
            if self._waiting.empty():
                return
            current = self._current = self._waiting.get_nowait()
            self._note(EventType.COMMAND_TAKEN, current, CommandOutcome.NONE, 0)
            known = current.kind in tuple(CommandKind)
            if known and not (current.command.was_begun and current.kind not in REPEATABLE):
                arguments = dict(current.command.arguments)
                kind = CommandKind(current.kind)
                current.steps = self.operator.begin(kind, current.command.id, arguments)
        if not current.is_elsewhere:
            self._go_on(current)

    def _go_on(self, current: _InHand) -> None:
        if current.steps is None:
            self._end(current, _not_carried_out(current))
            return
        try:
            if isinstance(current.result, Exception):
                job = current.steps.throw(current.result)
            else:
                job = current.steps.send(current.result)
        except StopIteration as stop:
            self._end(current, stop.value)
        except (KvstrataError, OSError) as error:
            self._end(current, Ended(CommandOutcome.FAILED, str(error)))
        else:
            current.result = None
            if job is not None:
                current.is_elsewhere = True
                self._jobs.put((current, job))

    def _end(self, current: _InHand, ended: Ended) -> None:
        self._current = None
        self._note(EventType.COMMAND_ENDED, current, ended.outcome, ended.changed)
        self._num_ended += 1
        seqno = int(self._call.arena[META_LAST_SEQNO])
        self._answers.put((current.command.id, ended, seqno))
        self._jobs.put(None)

    def _note(
        self, event: EventType, current: _InHand, outcome: CommandOutcome, changed: int
    ) -> None:
        words = zeros(4)
        words[0] = current.command.id
        words[1] = current.kind | int(outcome) << 32
        words[2], words[3] = changed, current.prefix
        self._call.note(event, words)

    def end(self) -> None:
        """Answer what has ended, give up the rest, and stop: the next life takes it up again."""
        self._is_ending = True
        if self._current is not None and self._current.steps is not None:
            self._current.steps.close()
        self._jobs.put(None)
        if threading.current_thread() is not self._thread:
            self._thread.join(_END_S)

    # the service thread

    def _serve(self) -> None:
        try:
            while not self._is_ending:
                if time.monotonic() >= self._next_s:
                    self._look()
                self._work(max(0.0, self._next_s - time.monotonic()))
            self._work(0.0)
            if not self._error:
                self._look()
        finally:
            self._source.close()

    def _work(self, timeout_s: float) -> None:
        """Do what the mutating thread cannot wait for, until it is time to look again."""
        try:
            found = self._jobs.get(timeout=timeout_s) if timeout_s else self._jobs.get_nowait()
        except queue.Empty:
            return
        if found is None:  # something has ended: answer it now
            if not self._error:
                self._next_s = 0.0
            return
        current, job = found
        try:
            current.result = job()
        except (KvstrataError, OSError) as error:
            current.result = error
        current.is_elsewhere = False

    def _look(self) -> None:
        """Answer what has ended, then fetch more; where the source is away, wait for longer."""
        try:
            self._answer()
            if not self._is_ending:
                self._fetch()
        except (KvstrataError, OSError) as error:
            self._error = str(error)
            self._wait_s = min(max(2 * self._wait_s, _FIRST_WAIT_S), _LONGEST_WAIT_S)
            self._next_s = time.monotonic() + self._wait_s * (1 + random.random() / 4)
            return
        self._error, self._wait_s = "", 0.0
        self._next_s = time.monotonic() + self._poll_s

    def _answer(self) -> None:
        while not self._answers.empty():
            self._unanswered.append(self._answers.get_nowait())
        while self._unanswered:
            number, ended, seqno = self._unanswered[0]
            outcome, text = ended.outcome, ended.text
            try:
                if self._log.status().durable < seqno:
                    self._log.flush()
            except LogError as error:
                outcome = CommandOutcome.FAILED
                text = f"{ended.outcome.name.lower()} ({ended.text}), but not durably: {error}"
            self._source.answer(number, outcome.name.lower(), text, ended.changed, seqno)
            self._unanswered.pop(0)
            self._in_hand -= 1

    def _fetch(self) -> None:
        room = _MOST_IN_HAND - self._in_hand
        if room <= 0:
            return
        head = int(self._log.ring[RING_HEAD])
        for command in self._source.poll(self._log.incarnation, head, room):
            kind = getattr(CommandKind, command.kind.upper(), 0)
            self._in_hand += 1
            self._waiting.put(_InHand(command, int(kind), self._store(command)))

    def _store(self, command: OfferedCommand) -> int:
        """Keep a command's words beside the log; the first half of their name, as a word."""
        words = {
            "command": command.id,
            "kind": command.kind,
            "arguments": dict(command.arguments),
            "who": command.who,
        }
        try:
            digest = self._log.put_blob(words)
        except (LogError, ValueError):
            return 0  # a failing device: the catalogue has them too
        return int(np.frombuffer(digest[:8], dtype="<i8")[0])


def _not_carried_out(current: _InHand) -> Ended:
    name = current.command.kind
    if current.kind == 0:
        known = ", ".join(kind.name.lower() for kind in CommandKind)
        text = f"kind: expected one of {known}, found {name!r}"
        return Ended(CommandOutcome.REFUSED, text)
    return Ended(
        CommandOutcome.FAILED,
        f"an earlier life of the engine began it and died: whether {name} was done is not known, "
        "and twice would do harm; look at the log, then ask again",
    )

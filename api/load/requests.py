"""The requests of an engine under load: who waits, who runs, a piece of each in turn."""

from __future__ import annotations

import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from kvstrata import (
    AdmissionDenied,
    CapacityError,
    Deferred,
    OutOfPages,
    Request,
    Sequence,
    StaleLease,
    Suspended,
)
from kvstrata.engines.transformers.calls import split_calls
from kvstrata.engines.transformers.engine import Engine

from .messages import Counts, Heard
from .traffic import NEW_TOKENS, Traffic

__all__ = ["MAX_RUNNING", "Requests"]

MAX_RUNNING: Final = 6
_CHUNK_TOKENS: Final = 128
"""Prompt tokens computed in one go, so that who decodes need not wait long."""
_COMPARED_EVERY: Final = 25
"""Of so many requests a block of one is computed again, and compared with its pages."""
_SUSPENDED_EVERY: Final = 7
"""Of so many requests one is suspended in the middle of its answer, and resumed."""


@dataclass
class _One:
    """A request on its way."""

    number: int
    request: Request
    answer: list[int] = field(default_factory=list)
    sequence: Sequence | None = None
    suspended: Suspended | None = None
    ask_again_s: float = 0.0
    serial: int = 0


class Requests:
    """Begins what is due, and computes a piece of each running request in turn.

    Args:
        engine: a model on a manager's pools.
        traffic: what is said.
        model: name and weights of every request.
        counts: counted up.
    """

    def __init__(
        self, engine: Engine, traffic: Traffic, model: dict[str, Any], counts: Counts
    ) -> None:
        self._engine = engine
        self._manager = engine.manager
        self._traffic = traffic
        self._model = model
        self._counts = counts
        self._waiting: deque[_One] = deque()
        self._running: list[_One] = []
        self._serial = 0

    @property
    def num_running(self) -> int:
        """Requests that have begun and not ended."""
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        """Requests that have not begun, or are suspended."""
        return len(self._waiting)

    def next_requests(self) -> list[Request]:
        """What is asked next: who waits first, then what the silent will say."""
        taken = {one.number for one in (*self._waiting, *self._running)}
        silent = [number for number in range(len(self._traffic.talks)) if number not in taken]
        return [one.request for one in self._waiting if one.suspended is None] + [
            self._request(number) for number in silent
        ]

    def add(self, number: int) -> None:
        """A conversation's next turn is due."""
        self._serial += 1
        one = _One(number, self._request(number), serial=self._serial)
        self._waiting.append(one)
        self._manager.prefetch(one.request)

    def work(self) -> list[Heard]:
        """Begin whom there is room for, compute a piece of each, and say which turns are over."""
        ended = self._begin()
        for one in list(self._running):
            try:
                heard = self._advance(one)
            except CapacityError:
                heard = self._give_up(one)
            if heard is not None:
                ended.append(heard)
        return ended

    def _request(self, number: int) -> Request:
        prompt = self._traffic.prompt(number)
        return Request(prompt, max_new_tokens=NEW_TOKENS, **self._model)

    def _begin(self) -> list[Heard]:
        ended: list[Heard] = []
        for one in list(self._waiting):
            if len(self._running) == MAX_RUNNING:
                break
            if time.monotonic() < one.ask_again_s:
                continue
            try:
                one.sequence = self._begun(one)
            except Deferred as error:
                one.ask_again_s = time.monotonic() + error.retry_after_s
                self._counts.deferred += 1
            except (OutOfPages, StaleLease):
                continue  # as soon as somebody has ended, or with a new plan
            except AdmissionDenied:
                self._waiting.remove(one)
                ended.append(self._give_up(one))
            else:
                self._waiting.remove(one)
                self._running.append(one)
        return ended

    def _begun(self, one: _One) -> Sequence:
        if one.suspended is None:
            return self._manager.begin(self._manager.match(one.request))
        tokens = [*one.request.tokens.tolist(), *one.answer]
        return self._manager.resume(one.suspended, tokens)

    def _advance(self, one: _One) -> Heard | None:
        """Compute a chunk of its prompt, or a token of its answer."""
        sequence = one.sequence
        if sequence is None:
            raise RuntimeError("expected a request that has begun")
        prompt = one.request.tokens
        at = sequence.position
        if at < len(prompt):
            started = time.perf_counter()
            start, end = split_calls(at, len(prompt), sequence.captures, _CHUNK_TOKENS)[0]
            logits = self._engine.forward(sequence, prompt[start:end])
            self._manager.observe_compute(end - start, max(time.perf_counter() - started, 1e-9))
            if end < len(prompt):
                return None
        else:
            done = at - len(prompt)  # a resumed one may have to compute some of its answer again
            logits = self._engine.forward(sequence, one.answer[done : done + 1])
            if done + 1 < len(one.answer):
                return None
        one.answer.append(int(logits[-1].argmax()))
        if len(one.answer) >= NEW_TOKENS:
            return self._finish(one, sequence)
        if one.serial % _SUSPENDED_EVERY == 0 and len(one.answer) == NEW_TOKENS // 2:
            self._suspend(one, sequence)
        return None

    def _finish(self, one: _One, sequence: Sequence) -> Heard:
        self._engine.take_calls(sequence)
        sequence.finish()
        self._running.remove(one)
        self._counts.requests += 1
        self._counts.prompt_tokens += len(one.request.tokens)
        self._counts.resumed_tokens += min(sequence.resumed_at, len(one.request.tokens))
        if self._counts.requests % _COMPARED_EVERY == 0:
            self._engine.comparer.compare(one.request, chunk=_CHUNK_TOKENS)
        return self._heard(one, one.answer)

    def _suspend(self, one: _One, sequence: Sequence) -> None:
        self._engine.take_calls(sequence)
        one.suspended = self._manager.suspend(sequence)
        one.serial = 1  # once is enough
        self._running.remove(one)
        self._waiting.append(one)
        self._counts.suspended += 1

    def _give_up(self, one: _One) -> Heard:
        if one.sequence is not None and one in self._running:
            self._engine.take_calls(one.sequence)
            one.sequence.cancel()
            self._running.remove(one)
        self._counts.given_up += 1
        return self._heard(one, [])

    def _heard(self, one: _One, answer: list[int]) -> Heard:
        self._traffic.hear(one.number, one.request.tokens, np.array(answer, dtype=np.int32))
        return Heard(one.number, self._traffic.talks[one.number])

"""An engine's loop around the manager, with nothing to compute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from kvstrata import CacheManager, Deferred, InvariantViolation, Request, Sequence

from ..traces import TraceRequest

__all__ = ["Engine"]

CHUNK_TOKENS = 8192
"""Prompt tokens computed in one step."""
DECODE_STEPS = 128
"""Steps after which a look at the ring is due, long before it could run over."""


@dataclass
class _Running:
    """A request that decodes."""

    sequence: Sequence
    output: npt.NDArray[np.int32]
    done: int = 0


class Engine:
    """Computes requests in steps of a batch, and counts the CPU time of the manager.

    Args:
        cache: the manager.
        identity: model, weights and adapter of every request.
        logged: called whenever something was logged, before too much is.
        stopped: whether to break off; asked often. What was begun is left as it is then.

    Attributes:
        cpu_ns: CPU time of this thread in the manager.
    """

    def __init__(
        self,
        cache: CacheManager,
        identity: dict[str, Any],
        logged: Callable[[], None],
        stopped: Callable[[], bool],
    ) -> None:
        self._cache = cache
        self._identity = identity
        self._logged = logged
        self._stopped = stopped
        self._running: list[_Running] = []
        self._waiting: Request | None = None
        self.cpu_ns = 0

    @property
    def num_running(self) -> int:
        """Requests that have begun and not ended."""
        return len(self._running)

    def begin(self, wanted: TraceRequest) -> bool:
        """Begin a request and compute its prompt; False where it has to wait.

        It is then to be asked for again before any other.
        """
        sequence = self._admitted(wanted)
        self._logged()
        if sequence is None:
            return False
        self._running.append(_Running(sequence, wanted.output()))
        self._prefill(sequence, wanted.prompt_tokens)
        return True

    def _admitted(self, wanted: TraceRequest) -> Sequence | None:
        request = self._waiting  # the same again: it keeps its place, and its keys
        if request is None:
            prompt, length = wanted.prompt(), wanted.output_tokens
            with self._timed():
                request = Request(prompt, max_new_tokens=length, **self._identity)
        try:
            with self._timed():
                sequence = self._cache.begin(self._cache.match(request))
        except Deferred as error:
            self._waiting = request
            if not self._running:
                time.sleep(error.retry_after_s)
            return None
        self._waiting = None
        return sequence

    def _prefill(self, sequence: Sequence, end: int) -> None:
        at = sequence.position
        stops = [stop for stop in sequence.captures if at < stop < end] + [end]
        for stop in stops:
            while at < stop and not self._stopped():
                tokens = min(CHUNK_TOKENS, stop - at)
                with self._timed():
                    step = self._cache.reserve([sequence.id], [tokens])
                    if step.refused.any():
                        why = step.refused[0]
                        raise InvariantViolation(f"a promised step was refused: {why}")
                    step.commit()
                at += tokens
                self._logged()

    def decode(self) -> None:
        """Decode until the first of the running requests has its whole answer; finish those."""
        running, cache = self._running, self._cache
        left = min((len(one.output) - one.done for one in running), default=0)
        ids = np.array([one.sequence.id for one in running], dtype=np.int64)
        ones = np.ones(len(running), dtype=np.int64)
        while left and not self._stopped():
            steps = min(left, DECODE_STEPS)
            tokens = np.ascontiguousarray(
                np.stack([one.output[one.done : one.done + steps] for one in running]).T
            )
            with self._timed():
                for number in range(steps):
                    cache.reserve(ids, ones).commit(tokens=tokens[number])
            for one in running:
                one.done += steps
            left -= steps
            self._logged()
        self._finish()

    def _finish(self) -> None:
        for one in self._running:
            if one.done == len(one.output):
                with self._timed():
                    one.sequence.finish()
        self._running = [one for one in self._running if one.done < len(one.output)]
        self._logged()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        """Count CPU time of this thread as the manager's."""
        start = time.thread_time_ns()
        try:
            yield
        finally:
            self.cpu_ns += time.thread_time_ns() - start

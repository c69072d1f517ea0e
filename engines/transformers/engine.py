"""Run a model on kvstrata's pools: prefill, decode, speculative steps, one sequence at a time."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from transformers import DeepseekV4ForCausalLM

from kvstrata import (
    CacheManager,
    CapacityError,
    ConfigError,
    OutOfPages,
    Plan,
    Request,
    Sequence,
    Step,
)

from .cache import KvstrataCache
from .calls import Call, split_calls
from .comparing import PageComparer
from .pages import PoolRows
from .registration import register

__all__ = ["Engine", "Generation", "RunningStep"]


@dataclass
class RunningStep:
    """A step whose forward call has ended and which is neither committed nor aborted.

    Args:
        logits: [tokens, vocabulary] of the step's tokens.
    """

    logits: Tensor
    _step: Step
    _tokens: NDArray[np.int32]
    _calls: list[Call]

    def commit(self, accepted: int | None = None) -> None:
        """Keep the step's first `accepted` tokens, all by default.

        Mutates: the manager, the sequence's position and its record of calls.
        """
        count = len(self._tokens) if accepted is None else accepted
        start = int(self._step.start[0])
        self._step.commit(accepted=np.array([count], np.int32), tokens=self._tokens)
        self._calls.append(Call(start, len(self._tokens), count))

    def abort(self) -> None:
        """Keep nothing.

        Mutates: the manager.
        """
        self._step.abort()


@dataclass(frozen=True)
class Generation:
    """What a request produced.

    Args:
        tokens: the new tokens, greedily chosen.
        logits: [new tokens, vocabulary], the row each token was chosen from.
        resumed_at: position up to which nothing was computed.
        computed_tokens: prompt tokens that were computed.
        calls: every call of the model, in order.
        begin_ms: time to match and begin.
        prefill_ms: time to the first token's logits.
        decode_ms: time of the rest.
    """

    tokens: list[int]
    logits: Tensor
    resumed_at: int
    computed_tokens: int
    calls: list[Call] = field(repr=False)
    begin_ms: float
    prefill_ms: float
    decode_ms: float


class Engine:
    """A model whose cache is a manager's pools.

    Every call of the model is one step of the manager. The calls of a sequence are recorded until
    `take_calls`, since only the stock cache fed the same calls gives the same bits. The engine
    registers its kernels and compressors with the manager, and tells it how fast it computes.

    Args:
        model: in evaluation mode.
        manager: opened with pools and with `layout_for_model(model)`.
        compare_every: after so many requests a block of the last one's prefix is computed again
            and compared with its pages; 0 for never.
        tolerance: see :class:`.comparing.PageComparer`.

    Attributes:
        comparer: compares pages with what the model computes again.

    Raises:
        ConfigError: a setting is negative.
    """

    def __init__(
        self,
        model: DeepseekV4ForCausalLM,
        manager: CacheManager,
        compare_every: int = 0,
        tolerance: float | None = None,
    ) -> None:
        if compare_every < 0:
            raise ConfigError(f"compare_every: expected at least 0, found {compare_every}")
        self.model = model
        self.manager = manager
        self._rows = PoolRows(manager)
        self._calls: dict[int, list[Call]] = {}
        self.comparer = PageComparer(model, self._rows, tolerance)
        self._compare_every = compare_every
        self._num_served = 0
        register(model, manager)

    def run(self, sequence: Sequence, tokens: ArrayLike) -> RunningStep:
        """Run one step and leave it open, so that the caller commits what it accepts.

        Args:
            sequence: a begun sequence.
            tokens: int32 [n], the tokens that follow its position.

        Returns:
            The open step with its logits.

        Raises:
            CapacityError: the manager refused the step; nothing was changed.

        Mutates: the manager's step table and the pages of the step.
        """
        ids = np.ascontiguousarray(tokens, dtype=np.int32)
        step = self.manager.reserve(
            np.array([sequence.id], np.int64), np.array([len(ids)], np.int32)
        )
        _check_refused(step, sequence, len(ids))
        try:
            with torch.no_grad():
                output = self.model(
                    input_ids=torch.from_numpy(ids.astype(np.int64))[None],
                    cache=KvstrataCache(self._rows, sequence, step),
                )
        except BaseException:
            step.abort()
            raise
        return RunningStep(output.logits[0], step, ids, self._calls.setdefault(sequence.id, []))

    def forward(self, sequence: Sequence, tokens: ArrayLike) -> Tensor:
        """Run one step and commit it whole; returns logits [n, vocabulary].

        Args:
            sequence: a begun sequence.
            tokens: int32 [n], the tokens that follow its position.

        Raises:
            CapacityError: the manager refused the step; nothing was changed.

        Mutates: the manager, the pools and the sequence's position.
        """
        running = self.run(sequence, tokens)
        running.commit()
        return running.logits

    def prefill(self, sequence: Sequence, prompt: ArrayLike, chunk: int | None = None) -> Tensor:
        """Compute what a sequence has not reused of its prompt.

        A call ends at every position of `sequence.captures`, where a checkpoint is taken.

        Args:
            sequence: a begun sequence.
            prompt: int32 [n], the whole prompt.
            chunk: most tokens of a call; as many as captures allow if None.

        Returns:
            Logits [n - position at the start, vocabulary].

        Raises:
            CapacityError: the manager refused a step; earlier calls stay committed.

        Mutates: the manager, the pools and the sequence's position.
        """
        ids = np.ascontiguousarray(prompt, dtype=np.int32)
        logits = []
        for start, end in split_calls(sequence.position, len(ids), sequence.captures, chunk):
            logits.append(self.forward(sequence, ids[start:end]))
        return torch.cat(logits)

    def generate(
        self,
        request: Request,
        max_new_tokens: int,
        chunk: int | None = None,
        plan: Plan | None = None,
        wait_s: float = 0.0,
    ) -> Generation:
        """Serve a request greedily from match to finish.

        Args:
            request: the request.
            max_new_tokens: tokens to choose, at least 1; the last one is not fed to the model.
            chunk: most prompt tokens of a call.
            plan: a plan matched earlier for this request.
            wait_s: how long it may wait to begin, where nothing was matched earlier: for pages
                that a lower tier has, or to be admitted.

        Returns:
            Tokens, logits and times.

        Raises:
            Deferred, AdmissionDenied: it may not begin, now or ever.
            CapacityError: there is no room; the sequence is cancelled.

        Mutates: the manager and the pools.
        """
        started = time.perf_counter()
        if plan is None:
            wanted = replace(request, max_new_tokens=max_new_tokens)
            sequence = self.manager.begin_when_ready(wanted, wait_s)
        else:
            sequence = self.manager.begin(plan)
        begun = time.perf_counter()
        resumed_at = sequence.position
        try:
            rows = [self.prefill(sequence, request.tokens, chunk)[-1:]]
            prefilled = time.perf_counter()
            tokens = [int(rows[-1].argmax())]
            while len(tokens) < max_new_tokens:
                rows.append(self.forward(sequence, tokens[-1:]))
                tokens.append(int(rows[-1].argmax()))
        except BaseException:
            sequence.cancel()
            self.take_calls(sequence)
            raise
        ended = time.perf_counter()
        calls = self.take_calls(sequence)
        sequence.finish()
        computed = len(request.tokens) - resumed_at
        self.manager.observe_compute(computed, max(prefilled - begun, 1e-9))
        self._num_served += 1
        if self._compare_every and self._num_served % self._compare_every == 0:
            self.comparer.compare(request, chunk=chunk)
        return Generation(
            tokens=tokens,
            logits=torch.cat(rows),
            resumed_at=resumed_at,
            computed_tokens=computed,
            calls=calls,
            begin_ms=(begun - started) * 1e3,
            prefill_ms=(prefilled - begun) * 1e3,
            decode_ms=(ended - prefilled) * 1e3,
        )

    def take_calls(self, sequence: Sequence) -> list[Call]:
        """Hand the record of a sequence's calls over and forget it."""
        return self._calls.pop(sequence.id, [])


def _check_refused(step: Step, sequence: Sequence, num_tokens: int) -> None:
    reason = int(step.refused[0])
    if not reason:
        return
    step.abort()
    expected = f"sequence {sequence.id:#x}: expected room for a step of {num_tokens} tokens, found "
    if reason == 1:
        raise CapacityError(f"{expected}the longest sequence; raise max_tokens_per_sequence")
    if reason == 2:
        raise CapacityError(f"{expected}a step in flight; commit or abort it first")
    raise OutOfPages(f"{expected}too few free pages; finish sequences or raise the budget")

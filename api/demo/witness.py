"""The uncached run: the stock cache of transformers, fed the same calls, in another process."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

import numpy as np
import numpy.typing as npt
import torch
from transformers import DynamicCache

from kvstrata import InvariantViolation
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.model import build_tiny_model

from .messages import Served, StepBegun, Tokens

__all__ = ["Witness"]


class Witness:
    """Computes what the engine's answers must be, bit for bit, in a thread beside the engine.

    The same tokens computed by other calls differ by rounding. So the stock cache is fed the calls
    that the engine made; for a prefix that the engine reused, those calls that wrote its pages. It
    is kept as it was after each of them that ended on a block, where a request may resume.

    Args:
        seed: seeds the model's weights.
    """

    def __init__(self, seed: int) -> None:
        self._model = build_tiny_model(seed)
        self._block_tokens = layout_for_model(self._model).block_tokens
        self._caches: dict[bytes, DynamicCache] = {}
        # Products split over threads by load would differ in the last bits from run to run. The
        # number of torch's threads is each thread's own.
        self._thread = ThreadPoolExecutor(1, initializer=torch.set_num_threads, initargs=(1,))

    def agrees(self, prompt: Tokens, served: Served) -> Future[bool]:
        """Whether an answer's logits and tokens are those of the uncached run.

        Args:
            prompt: int32[n].
            served: the answer.

        Returns:
            The verdict to come; InvariantViolation if no call ended where the request resumed.
        """
        return self._thread.submit(self._agrees, prompt, served)

    def follow(self, tokens: Tokens, steps: Sequence[StepBegun]) -> None:
        """Make the calls of steps whose logits nobody saw, since later requests may reuse them.

        Args:
            tokens: int32[n], the sequence.
            steps: consecutive steps of it; the first begins at 0 or where a known call ended.
        """
        self._thread.submit(self._feed, tokens, steps)

    def close(self) -> None:
        """Drop what was not compared yet."""
        self._thread.shutdown(wait=False, cancel_futures=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def _agrees(self, prompt: Tokens, served: Served) -> bool:
        fed = np.concatenate([prompt, served.tokens[:-1]])
        logits = self._feed(fed, served.steps)[-len(served.tokens) :]
        return bool(
            logits.shape == served.logits.shape
            and np.array_equal(logits.view(np.uint32), served.logits.view(np.uint32))
            and np.array_equal(logits.argmax(axis=1), served.tokens)
        )

    def _feed(self, tokens: Tokens, steps: Sequence[StepBegun]) -> npt.NDArray[np.float32]:
        """Feed the stock cache; returns float32[tokens of the steps, vocabulary], the logits."""
        logits: list[npt.NDArray[np.float32]] = []
        cache = self._cache_at(tokens[: steps[0].start])
        for step in steps:
            end = step.start + step.num_tokens
            ids = torch.from_numpy(tokens[step.start : end].astype(np.int64))[None]
            with torch.no_grad():
                logits.append(self._model(input_ids=ids, cache=cache).logits[0].numpy())
            if end % self._block_tokens == 0:
                self._caches.setdefault(tokens[:end].tobytes(), copy.deepcopy(cache))
        return np.concatenate(logits)

    def _cache_at(self, prefix: Tokens) -> DynamicCache:
        if not len(prefix):
            return DynamicCache(config=self._model.config)
        try:
            return copy.deepcopy(self._caches[prefix.tobytes()])
        except KeyError:
            raise InvariantViolation(
                f"expected a request to resume where a call ended, found position {len(prefix)}"
            ) from None

"""The uncached truth: the stock cache of transformers fed the calls that wrote the pages.

The same tokens computed by other calls differ by rounding, so a run through the pools is held
against a stock run of the same calls: first those that wrote the prefix it resumed from, then
its own.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor
from transformers import DeepseekV4ForCausalLM, DynamicCache

from kvstrata import ConfigError

from .calls import Call

__all__ = ["CallHistory", "replay_stock"]


@dataclass(frozen=True)
class _Served:
    tokens: NDArray[np.int32]
    calls: tuple[Call, ...]


class CallHistory:
    """Which calls wrote which prefix, for requests served one after another."""

    def __init__(self) -> None:
        self._served: list[_Served] = []

    def add(self, tokens: ArrayLike, resumed_at: int, calls: Iterable[Call]) -> list[Call]:
        """Remember a request and name every call its pages come from.

        Args:
            tokens: int32 [n], prompt and output.
            resumed_at: where it resumed.
            calls: its own calls, fully accepted.

        Returns:
            The calls from position 0 on, those before `resumed_at` by earlier requests.

        Raises:
            ConfigError: no remembered request has a call that ends at `resumed_at` in this prefix.

        Mutates: the history.
        """
        served = np.ascontiguousarray(tokens, dtype=np.int32)
        whole = [*self._writers(served[:resumed_at]), *calls]
        self._served.append(_Served(served, tuple(whole)))
        return whole

    def _writers(self, prefix: NDArray[np.int32]) -> list[Call]:
        if len(prefix) == 0:
            return []
        for served in self._served:
            if not np.array_equal(served.tokens[: len(prefix)], prefix):
                continue
            before = [call for call in served.calls if call.start < len(prefix)]
            if before and before[-1].start + before[-1].num_tokens == len(prefix):
                return before
        raise ConfigError(
            f"expected a request added earlier with a call that ends at {len(prefix)} of this "
            f"prefix, found none among {len(self._served)}; add every request that was served"
        )


def replay_stock(model: DeepseekV4ForCausalLM, tokens: ArrayLike, calls: Iterable[Call]) -> Tensor:
    """Feed the stock cache a sequence of calls.

    Args:
        model: the model.
        tokens: int32 [n].
        calls: fully accepted calls from position 0 on, without gaps.

    Returns:
        Logits [tokens of all calls, vocabulary].

    Raises:
        ConfigError: the calls leave a gap, or one was not accepted whole.
    """
    ids = torch.from_numpy(np.ascontiguousarray(tokens, dtype=np.int64))[None]
    cache = DynamicCache(config=model.config)
    logits = []
    end = 0
    for call in calls:
        if call.start != end or call.accepted != call.num_tokens:
            raise ConfigError(f"expected a whole call from position {end} on, found {call}")
        end += call.num_tokens
        with torch.no_grad():
            output = model(input_ids=ids[:, call.start : end], cache=cache)
        logits.append(output.logits[0])
    return torch.cat(logits)

"""The cache object answers every call as the stock cache does, and guards what it writes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from transformers import DeepseekV4ForCausalLM
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING, DynamicCache

from kvstrata import ConfigError, InvariantViolation
from kvstrata.engines.transformers.cache import KvstrataCache
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.model import CSA, HCA
from kvstrata.engines.transformers.pages import EntryRange, PoolRows, pools_of

from .helpers import begin, open_engine, same, tiny_model, tokens

COMPARED = (
    "update",
    "store_compression_weights",
    "update_overlap_state",
    "update_compressor_states",
)


class Twin(KvstrataCache):
    """Asks the stock cache along with ours and holds every answer against its answer."""

    def __init__(self, stock: DynamicCache, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.compared = 0
        assert self.is_sliding == stock.is_sliding
        assert self.is_initialized == stock.is_initialized
        assert self.is_compileable == stock.is_compileable
        self.stock = stock
        for index, layer in enumerate(self.layers):
            for name in COMPARED:
                self._compare(layer, stock.layers[index], name)

    def _compare(self, layer: Any, stock_layer: Any, name: str) -> None:
        ours = getattr(layer, name)

        def compared(*arguments: Any, **named: Any) -> Any:
            answer = ours(*arguments, **named)
            self._check(answer, getattr(stock_layer, name)(*arguments, **named))
            assert layer.get_seq_length() == stock_layer.get_seq_length()
            assert layer.is_initialized == stock_layer.is_initialized
            return answer

        setattr(layer, name, compared)

    def _check(self, ours: Any, stock: Any) -> None:
        self.compared += 1
        if isinstance(stock, tuple):
            assert len(ours) == len(stock)
            for one, other in zip(ours, stock, strict=True):
                self._check(one, other)
        elif isinstance(stock, Tensor):
            assert same(ours, stock)
            assert ours.is_contiguous()
        else:
            assert ours == stock

    def get_seq_length(self, layer_idx: int = 0) -> int:
        length: int = super().get_seq_length(layer_idx)
        assert length == self.stock.get_seq_length(layer_idx)
        return length

    def get_mask_sizes(self, query_length: int, layer_idx: int) -> tuple[int, int]:
        sizes: tuple[int, int] = super().get_mask_sizes(query_length, layer_idx)
        for length in (1, query_length):
            expected = self.stock.get_mask_sizes(length, layer_idx)
            assert super().get_mask_sizes(length, layer_idx) == expected
        return sizes


def _open_step(engine: Engine, sequence: Any, size: int) -> Any:
    return engine.manager.reserve(np.array([sequence.id], np.int64), np.array([size], np.int32))


def test_every_answer_has_the_bits_of_the_stock_cache(model: DeepseekV4ForCausalLM) -> None:
    prompt = tokens(200)
    engine = open_engine(model)
    rows = PoolRows(engine.manager)
    stock = DynamicCache(config=model.config)
    sequence = begin(engine, prompt)
    for size in (2, 1, 1, 13, 9, 4, 31, 1, 7, 40):
        start = sequence.position
        step = _open_step(engine, sequence, size)
        twin = Twin(stock, rows, sequence, step)
        with torch.no_grad():
            ids = torch.from_numpy(prompt[start : start + size].astype(np.int64))[None]
            model(input_ids=ids, cache=twin)
        step.commit()
        assert twin.compared > 20


def test_stock_layer_types_stay_registered() -> None:
    assert DYNAMIC_LAYER_TYPE_MAPPING[CSA].__module__.startswith("transformers.")
    assert DYNAMIC_LAYER_TYPE_MAPPING[HCA].__module__.startswith("transformers.")


def test_sealed_pages_are_write_protected() -> None:
    engine = open_engine(tiny_model(torch.float32))
    manager = engine.manager
    prompt = tokens(40)
    sequence = begin(engine, prompt)
    engine.forward(sequence, prompt[:20])
    rows = PoolRows(manager)
    slots = manager.block_slots(sequence, "c4")
    entries = rows("c4", "entry", 1)
    storage = pools_of(manager).storage("c4")
    before = storage.clone()
    with pytest.raises(InvariantViolation, match=r"c4.*sealed"):
        entries.write(sequence, EntryRange(slots, 4, 3, 5), torch.ones(1, 2, 32))
    assert torch.equal(storage, before)


@pytest.mark.parametrize(
    "values",
    [
        torch.ones(1, 2, 32, dtype=torch.bfloat16),
        torch.ones(1, 2, 31),
        torch.ones(1, 1, 32),
        torch.ones(2, 2, 32),
    ],
    ids=["dtype", "shape", "count", "batch"],
)
def test_rows_of_another_layout_are_refused(values: Tensor) -> None:
    engine = open_engine(tiny_model(torch.float32))
    rows = PoolRows(engine.manager)
    sequence = begin(engine, tokens(20))
    at = EntryRange(np.array([1], np.int32), 4, 0, 2)
    with pytest.raises(ConfigError, match=r"c4\.entry: expected 2 rows .*layout_for_model"):
        rows("c4", "entry", 1).write(sequence, at, values)


def test_a_cache_serves_one_call_of_its_step() -> None:
    model = tiny_model(torch.float32)
    engine = open_engine(model)
    sequence = begin(engine, tokens(40))
    step = _open_step(engine, sequence, 4)
    cache = KvstrataCache(PoolRows(engine.manager), sequence, step)
    with pytest.raises(ConfigError, match="expected one call of the step's 4 tokens"):
        model(input_ids=torch.tensor([[1, 2, 3]]), cache=cache)
    model(input_ids=torch.tensor([[1, 2, 3, 4]]), cache=cache)
    with pytest.raises(ConfigError, match="at position 4; reserve a step for each call"):
        model(input_ids=torch.tensor([[1, 2, 3, 4]]), cache=cache)
    cache = KvstrataCache(PoolRows(engine.manager), sequence, step)
    with pytest.raises(ConfigError, match="expected one call"):
        model(input_ids=torch.tensor([[1, 2, 3, 4]] * 2), cache=cache)
    step.abort()


@pytest.mark.parametrize(
    ("call", "argument"), [("crop", (-1,)), ("reset", ()), ("reorder_cache", (torch.tensor([0]),))]
)
def test_what_the_manager_does_is_refused_here(call: str, argument: tuple[Any, ...]) -> None:
    engine = open_engine(tiny_model(torch.float32))
    sequence = begin(engine, tokens(40))
    step = _open_step(engine, sequence, 4)
    cache = KvstrataCache(PoolRows(engine.manager), sequence, step)
    with pytest.raises(ConfigError, match=call):
        getattr(cache, call)(*argument)
    step.abort()

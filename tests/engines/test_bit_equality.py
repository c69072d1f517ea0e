"""Generation through the pools has the bits of the stock cache fed the same calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import DeepseekV4ForCausalLM

from kvstrata.engines.transformers.model import build_tiny_model, tiny_config

from .helpers import begin, open_engine, request, same, tokens
from .oracle import StockModel

# Chunks that are not multiples of a ratio leave windows open; 40 and 150 need a second image.
SIZES = {
    "one_shot": [150],
    "blocks": [16] * 6,
    "sevens": [7] * 12,
    "forties": [40, 40, 40],
    "mixed": [1, 2, 3, 4, 5, 9, 17, 33, 1, 8, 8, 40, 1],
    "token_by_token": [1] * 45,
}


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
def test_same_calls_give_same_bits(model: DeepseekV4ForCausalLM, sizes: list[int]) -> None:
    prompt = tokens(sum(sizes) + 1)
    engine, stock = open_engine(model), StockModel(model)
    sequence = begin(engine, prompt)
    for size in sizes:
        start = sequence.position
        call = prompt[start : start + size]
        assert same(engine.forward(sequence, call), stock.forward(call.tolist())), start
    assert sequence.position == sum(sizes)


@pytest.mark.parametrize("chunk", [None, 13], ids=["one_shot", "chunk13"])
def test_generation_chooses_the_same_tokens(
    model: DeepseekV4ForCausalLM, chunk: int | None
) -> None:
    prompt = tokens(100)
    made = open_engine(model).generate(request(prompt), max_new_tokens=12, chunk=chunk)
    stock = StockModel(model)
    prefill = [call for call in made.calls if call.start < len(prompt)]
    logits = [stock.feed(prompt.tolist(), [call.num_tokens for call in prefill])[-1:]]
    while len(logits) < 12:
        logits.append(stock.forward([int(logits[-1].argmax())]))
    assert made.tokens == [int(row.argmax()) for row in logits]
    assert same(made.logits, torch.cat(logits))
    assert made.resumed_at == 0
    assert made.computed_tokens == 100


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_published_ratios_with_a_window_larger_than_a_block(dtype: torch.dtype) -> None:
    model = build_tiny_model(5, dtype, tiny_config(hca_ratio=128, sliding_window=150))
    prompt = tokens(420)
    engine, stock = open_engine(model, slots=40), StockModel(model)
    first = begin(engine, prompt[:300])
    sizes = [128, 7, 121, 44]
    for size in sizes:
        call = prompt[first.position : first.position + size]
        assert same(engine.forward(first, call), stock.forward(call.tolist()))
    engine.take_calls(first)
    first.finish()
    second = begin(engine, prompt)
    assert second.position == 256
    stock.truncate(256)
    for size in [100, *[1] * 5, 8]:
        call = prompt[second.position : second.position + size]
        assert same(engine.forward(second, call), stock.forward(call.tolist()))


def test_a_random_sequence_of_calls(model: DeepseekV4ForCausalLM) -> None:
    random = np.random.default_rng(11)
    prompt = tokens(400, seed=4)
    engine, stock = open_engine(model), StockModel(model)
    sequence = begin(engine, prompt)
    while sequence.position < 150:
        size = int(random.choice([1, 3, 4, 8, 9, 15, 16, 17, 30]))
        call = prompt[sequence.position : sequence.position + size]
        assert same(engine.forward(sequence, call), stock.forward(call.tolist()))

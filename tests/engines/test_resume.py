"""Resuming from pages that another sequence wrote."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from transformers import DeepseekV4ForCausalLM

from kvstrata.engines.transformers.stock import CallHistory, replay_stock

from .helpers import begin, open_engine, request, same, tokens
from .oracle import StockModel

BLOCK = 16
PROMPT = 256


def test_every_block_boundary_of_a_prompt(model: DeepseekV4ForCausalLM) -> None:
    """Prompts that grow by a block leave a checkpoint at each boundary; each is resumed from."""
    prompt = tokens(PROMPT)
    answer = np.array([[72], [101]], np.int32)
    engine = open_engine(model)
    stock = StockModel(model)
    for end in range(BLOCK, PROMPT + 1, BLOCK):
        writer = begin(engine, prompt[:end])
        assert writer.position == end - BLOCK, "a growing prompt resumes at the prompt before"
        engine.prefill(writer, prompt[:end])
        writer.finish()
        stock.forward(prompt[end - BLOCK : end].tolist())
    for position in range(BLOCK, PROMPT, BLOCK):
        reader = begin(engine, prompt, max_resume=position)
        assert reader.position == position
        resumed = stock.fork(position)
        for call in (prompt[position:], *answer):
            assert same(engine.forward(reader, call), resumed.forward(call.tolist())), position
        reader.finish()


def test_turns_of_a_conversation(model: DeepseekV4ForCausalLM) -> None:
    engine = open_engine(model)
    conversation = tokens(60, seed=1)
    history = CallHistory()
    for turn in range(3):
        made = engine.generate(request(conversation), max_new_tokens=20)
        if turn:
            assert made.resumed_at >= len(conversation) - 45 - BLOCK
        fed = np.concatenate([conversation, np.array(made.tokens, np.int32)])
        calls = history.add(fed, made.resumed_at, made.calls)
        logits = replay_stock(model, fed, calls)[-len(made.tokens) :]
        assert same(made.logits, logits)
        assert made.tokens == logits.argmax(dim=-1).tolist()
        conversation = np.concatenate([fed, tokens(25, seed=turn + 10)])


def test_other_calls_give_the_same_tokens(
    model: DeepseekV4ForCausalLM, capsys: pytest.CaptureFixture[str]
) -> None:
    """No stock run has these calls: a one-shot run differs by rounding, and only by that."""
    prompt = tokens(230, seed=2)
    engine = open_engine(model)
    engine.generate(request(prompt[:200]), max_new_tokens=1)
    made = engine.generate(request(prompt), max_new_tokens=16)
    assert made.resumed_at == 192
    stock = StockModel(model)
    logits = [stock.forward(prompt.tolist())[-1:]]
    for token in made.tokens[:-1]:
        logits.append(stock.forward([token]))
    one_shot = torch.cat(logits)
    difference = float((made.logits.float() - one_shot.float()).abs().max())
    agreed = sum(
        int(row.argmax()) == token for row, token in zip(one_shot, made.tokens, strict=True)
    )
    with capsys.disabled():
        print(f" [{model.dtype}: max difference {difference:.1e}, {agreed}/16 tokens] ", end="")
    if model.dtype == torch.float32:
        assert agreed == 16
        assert difference < 1e-4

"""Steps that are aborted or accepted in part leave the state of the tokens that were kept."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from transformers import DeepseekV4ForCausalLM

from kvstrata.engines.transformers.pages import pools_of

from .helpers import begin, open_engine, same, tokens
from .oracle import StockModel

ROLLBACK = 8


@pytest.mark.parametrize("offset", [0, 3, 13], ids=lambda offset: f"at{64 + offset}")
def test_every_number_of_accepted_tokens(model: DeepseekV4ForCausalLM, offset: int) -> None:
    """Positions around window and block ends: reopened windows, rings that wrap, closed pages."""
    prompt = tokens(200)
    start = 64 + offset
    prefix = StockModel(model)
    prefix.forward(prompt[:start].tolist())
    for accepted in range(ROLLBACK + 1):
        engine, stock = open_engine(model, slots=24), prefix.fork(start)
        sequence = begin(engine, prompt[:start])
        engine.forward(sequence, prompt[:start])
        draft = prompt[100 : 100 + ROLLBACK]
        running = engine.run(sequence, draft)
        assert same(running.logits, stock.forward(draft.tolist()))
        running.commit(accepted)
        stock.truncate(start + accepted)
        assert sequence.position == start + accepted
        for call in (prompt[:3], prompt[50:58]):
            assert same(engine.forward(sequence, call), stock.forward(call.tolist())), accepted


def test_random_speculation(model: DeepseekV4ForCausalLM) -> None:
    random = np.random.default_rng(5)
    engine, stock = open_engine(model), StockModel(model)
    sequence = begin(engine, tokens(5))
    assert same(engine.forward(sequence, tokens(5)), stock.forward(tokens(5).tolist()))
    for round_number in range(20):
        size = int(random.choice([1, 2, 5, 8, 8, 24]))
        draft = tokens(size, seed=round_number)
        running = engine.run(sequence, draft)
        assert same(running.logits, stock.forward(draft.tolist())), round_number
        start = sequence.position
        accepted = int(random.integers(max(0, size - ROLLBACK), size + 1))
        running.commit(accepted)
        stock.truncate(start + accepted)
    assert sequence.position > 40


@pytest.mark.parametrize("size", [1, ROLLBACK, ROLLBACK + 1, 50])
@pytest.mark.parametrize("start", [0, 45])
def test_an_aborted_step_leaves_no_trace(
    model: DeepseekV4ForCausalLM, start: int, size: int
) -> None:
    prompt = tokens(200)
    engine, stock = open_engine(model), StockModel(model)
    sequence = begin(engine, prompt)
    if start:
        engine.forward(sequence, prompt[:start])
        stock.forward(prompt[:start].tolist())
    engine.run(sequence, tokens(size, seed=9)).abort()
    assert sequence.position == start
    for end in (start + 30, start + 31):
        call = prompt[sequence.position : end]
        assert same(engine.forward(sequence, call), stock.forward(call.tolist()))


def test_a_failing_call_aborts_its_step(model: DeepseekV4ForCausalLM) -> None:
    prompt = tokens(100)
    engine, stock = open_engine(model), StockModel(model)
    sequence = begin(engine, prompt)
    for call in (prompt[:20], prompt[20:60]):
        hook = model.model.layers[3].register_forward_pre_hook(_fail)
        with pytest.raises(RuntimeError, match="lost the device"):
            engine.forward(sequence, call)
        hook.remove()
        assert same(engine.forward(sequence, call), stock.forward(call.tolist()))


def _fail(module: torch.nn.Module, arguments: object) -> None:
    raise RuntimeError("lost the device")


def test_a_large_step_leaves_the_committed_image_alone(model: DeepseekV4ForCausalLM) -> None:
    prompt = tokens(100)
    engine = open_engine(model)
    sequence = begin(engine, prompt)
    engine.forward(sequence, prompt[:37])
    manager, pools = engine.manager, pools_of(engine.manager)
    slots = manager.image_slots(sequence)
    before = {name: pools.storage(name)[slot].clone() for name, slot in slots.items()}
    running = engine.run(sequence, prompt[37:80])
    for name, slot in slots.items():
        assert torch.equal(pools.storage(name)[slot], before[name])
    running.commit()
    assert not any(manager.image_slots(sequence)[name] == slots[name] for name in slots)


@pytest.mark.parametrize("sizes", [(4, 4), (24, 8), (1, 2, 5), (40, 3, 5)], ids=str)
def test_several_steps_in_flight(model: DeepseekV4ForCausalLM, sizes: tuple[int, ...]) -> None:
    """Later steps read what earlier, uncommitted ones wrote; aborting one aborts the later."""
    prompt = tokens(150)
    bounds = np.cumsum((37, *sizes)).tolist()
    engine, stock = open_engine(model), StockModel(model)
    sequence = begin(engine, prompt)
    assert same(engine.forward(sequence, prompt[:37]), stock.forward(prompt[:37].tolist()))
    for keep in (False, True):
        calls = [prompt[start:end] for start, end in pairwise(bounds)]
        running = [engine.run(sequence, call) for call in calls]
        for step, call in zip(running, calls, strict=True):
            assert same(step.logits, stock.forward(call.tolist()))
        for step in running if keep else running[:1]:
            step.commit() if keep else step.abort()
        if not keep:
            stock.truncate(37)
        assert sequence.position == (bounds[-1] if keep else 37)
    call = prompt[bounds[-1] : bounds[-1] + 9]
    assert same(engine.forward(sequence, call), stock.forward(call.tolist()))

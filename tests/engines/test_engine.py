"""The engine around the model: refusals, failures and the record of calls."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from kvstrata import (
    AdmissionDenied,
    CacheConfig,
    CacheManager,
    CapacityError,
    ConfigError,
    OutOfPages,
)
from kvstrata.engines.transformers.calls import Call
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.layout import layout_for_model

from .helpers import begin, open_engine, request, same, tiny_model, tokens
from .oracle import StockModel

MODEL = tiny_model(torch.float32)


def test_a_refused_step_changes_nothing() -> None:
    engine, stock = open_engine(MODEL, slots=9), StockModel(MODEL)
    prompt = tokens(100)
    sequence = begin(engine, prompt)
    with pytest.raises(OutOfPages, match="room for a step of 200 tokens, found too few free pages"):
        engine.forward(sequence, tokens(200))
    assert same(engine.forward(sequence, prompt[:50]), stock.forward(prompt[:50].tolist()))
    with pytest.raises(CapacityError, match="longest sequence"):
        engine.forward(sequence, tokens(1024))
    assert same(engine.forward(sequence, prompt[50:60]), stock.forward(prompt[50:60].tolist()))
    assert engine.take_calls(sequence) == [Call(0, 50, 50), Call(50, 10, 10)]
    engine.manager.check_integrity()


def test_a_step_that_could_not_be_rolled_back_is_refused() -> None:
    engine = open_engine(MODEL)
    sequence = begin(engine, tokens(60))
    running = engine.run(sequence, tokens(60)[:20])
    with pytest.raises(CapacityError, match="commit or abort it first"):
        engine.run(sequence, tokens(60)[20:40])
    running.commit()
    assert sequence.position == 20


def test_what_never_fits_is_denied_before_it_computes() -> None:
    engine = open_engine(MODEL, slots=9)
    with pytest.raises(AdmissionDenied, match="at most 8 blocks in all, found 13"):
        engine.generate(request(tokens(200)), max_new_tokens=2)
    with pytest.raises(AdmissionDenied):
        engine.generate(request(tokens(20)), max_new_tokens=200)
    assert engine.manager.stats().sequences == 0


def test_a_failed_request_leaves_its_sequence_row_and_pages(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = open_engine(MODEL, slots=9)

    def fail(*_: object) -> None:
        raise RuntimeError("the model broke")

    for _ in range(6):
        with monkeypatch.context() as patch:
            patch.setattr(engine, "forward", fail)
            with pytest.raises(RuntimeError, match="the model broke"):
                engine.generate(request(tokens(100)), max_new_tokens=2)
    made = engine.generate(request(tokens(60)), max_new_tokens=2)
    assert len(made.tokens) == 2
    engine.manager.check_integrity()


def test_accepted_and_rejected_calls_are_recorded() -> None:
    engine = open_engine(MODEL)
    prompt = tokens(10)
    sequence = begin(engine, prompt)
    engine.prefill(sequence, prompt, chunk=7)
    engine.run(sequence, np.array([1, 2, 3])).commit(accepted=1)
    engine.run(sequence, np.array([4])).abort()
    engine.run(sequence, np.array([5, 6])).commit()
    calls = [Call(0, 7, 7), Call(7, 3, 3), Call(10, 3, 1), Call(11, 2, 2)]
    assert engine.take_calls(sequence) == calls
    assert engine.take_calls(sequence) == []


def test_a_manager_without_pools_cannot_run_a_model() -> None:
    layout = layout_for_model(MODEL)
    manager = CacheManager.open(
        layout, CacheConfig(slots={group.name: 20 for group in layout.groups}, max_sequences=1)
    )
    with pytest.raises(ConfigError, match="found one of metadata alone"):
        Engine(MODEL, manager)

"""Naming the calls that wrote a prefix, and feeding them to the stock cache."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch

from kvstrata import ConfigError
from kvstrata.engines.transformers.calls import Call, split_calls
from kvstrata.engines.transformers.stock import CallHistory, replay_stock

from .helpers import same, tiny_model, tokens
from .oracle import StockModel


def _calls(*bounds: int) -> list[Call]:
    pairs = pairwise(bounds)
    return [Call(start, end - start, end - start) for start, end in pairs]


def test_writers_are_found_across_requests() -> None:
    history = CallHistory()
    text, other = tokens(64), tokens(64, seed=9)
    assert history.add(text[:40], 0, _calls(0, 16, 32, 40)) == _calls(0, 16, 32, 40)
    assert history.add(other, 0, _calls(0, 64)) == _calls(0, 64)
    assert history.add(text, 32, _calls(32, 48, 64)) == _calls(0, 16, 32, 48, 64)
    assert history.add(text, 48, _calls(48, 63)) == _calls(0, 16, 32, 48, 63)


def test_an_unknown_writer_is_an_error() -> None:
    history = CallHistory()
    history.add(tokens(64), 0, _calls(0, 20, 64))
    for prefix in (tokens(64), tokens(64, seed=9)):
        with pytest.raises(ConfigError, match="call that ends at 32"):
            history.add(prefix, 32, [])


def test_replay_feeds_these_calls() -> None:
    model = tiny_model(torch.float32)
    text = tokens(30)
    expected = StockModel(model).feed(text.tolist(), [7, 20, 3])
    assert same(replay_stock(model, text, _calls(0, 7, 27, 30)), expected)


@pytest.mark.parametrize("calls", [[Call(3, 4, 4)], [Call(0, 4, 3)]], ids=["gap", "partial"])
def test_replay_refuses_other_calls(calls: list[Call]) -> None:
    with pytest.raises(ConfigError, match="expected a whole call from position 0"):
        replay_stock(tiny_model(torch.float32), tokens(10), calls)


@pytest.mark.parametrize(
    ("start", "end", "captures", "chunk", "expected"),
    [
        (0, 40, (), None, [(0, 40)]),
        (0, 40, (16, 32), None, [(0, 16), (16, 32), (32, 40)]),
        (16, 40, (16, 32, 40, 48), 10, [(16, 26), (26, 32), (32, 40)]),
        (39, 40, (32,), 1, [(39, 40)]),
    ],
)
def test_calls_end_at_captures(
    start: int,
    end: int,
    captures: tuple[int, ...],
    chunk: int | None,
    expected: list[tuple[int, int]],
) -> None:
    assert split_calls(start, end, captures, chunk) == expected

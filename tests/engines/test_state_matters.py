"""Every stored component reaches the logits, and nothing else does."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch

from kvstrata import Sequence
from kvstrata.engines.transformers.engine import Engine
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.pages import pools_of

from .helpers import begin, open_engine, same, tiny_model, tokens

MODEL = tiny_model(torch.float32)
# Inside a block, with open windows of both ratios and a prior window.
POSITION = 75
COMPONENTS = [
    (group.name, component.name)
    for group in layout_for_model(MODEL).groups
    for component in group.components
]


@pytest.fixture(scope="module")
def running() -> Iterator[tuple[Engine, Sequence]]:
    engine = open_engine(MODEL)
    prompt = tokens(POSITION + 30)
    sequence = begin(engine, prompt)
    engine.prefill(sequence, prompt[:POSITION])
    yield engine, sequence
    sequence.cancel()


def _next_logits(engine: Engine, sequence: Sequence) -> torch.Tensor:
    """Logits of the next 30 tokens, computed and taken back."""
    step = engine.run(sequence, tokens(POSITION + 30)[POSITION:])
    step.abort()
    return step.logits


def _slots(engine: Engine, sequence: Sequence, group: str) -> list[int]:
    if engine.manager.layout.group(group).is_history:
        return [int(slot) for slot in engine.manager.block_slots(sequence, group)]
    return [engine.manager.image_slots(sequence)[group]]


@pytest.mark.parametrize(
    ("group", "component"), COMPONENTS, ids=[".".join(pair) for pair in COMPONENTS]
)
def test_every_component_reaches_the_logits(
    running: tuple[Engine, Sequence], group: str, component: str
) -> None:
    engine, sequence = running
    expected = _next_logits(engine, sequence)
    view = pools_of(engine.manager).view(group, component)
    layers = engine.manager.layout.group(group).layers
    for index, layer in enumerate(layers):
        kept = view.clone()
        noise = torch.Generator().manual_seed(1)
        for slot in _slots(engine, sequence, group):
            view[slot, index].normal_(0.0, 2.0, generator=noise)
        try:
            assert not same(_next_logits(engine, sequence), expected), layer
        finally:
            view.copy_(kept)
    assert same(_next_logits(engine, sequence), expected)


def test_no_other_page_reaches_the_logits(running: tuple[Engine, Sequence]) -> None:
    engine, sequence = running
    expected = _next_logits(engine, sequence)
    for group in engine.manager.layout.groups:
        storage = pools_of(engine.manager).storage(group.name)
        others = np.setdiff1d(np.arange(storage.shape[0]), _slots(engine, sequence, group.name))
        storage[torch.from_numpy(others)] = 0xFF
    assert same(_next_logits(engine, sequence), expected)

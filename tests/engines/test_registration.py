"""What the adapter says of itself decides what is a hit."""

import numpy as np
import pytest
import torch

from kvstrata import CacheManager, Rope, abi_of
from kvstrata.engines.transformers import Engine, build_tiny_model
from kvstrata.engines.transformers.registration import compressor_version

from .helpers import open_engine, request, tiny_model, tokens

PROMPT = tokens(100)


@pytest.fixture
def manager() -> CacheManager:
    """Holds the prompt, computed by the shared model."""
    engine = open_engine(tiny_model(torch.float32))
    engine.generate(request(PROMPT), 3)
    assert engine.manager.explain(request(PROMPT)).resume_at == 96
    return engine.manager


def verdicts(manager: CacheManager) -> str:
    return " ".join(way.verdict for way in manager.explain(request(PROMPT)).ways)


def test_another_compressor_is_no_hit(manager: CacheManager) -> None:
    """The same name of the weights, and other weights: found by what compressed the pages."""
    other = Engine(build_tiny_model(77, torch.float32), manager)
    assert "COMPRESSOR_VERSION" in verdicts(manager)
    assert other.generate(request(PROMPT), 3).resumed_at == 0
    assert other.generate(request(PROMPT), 3).resumed_at == 96
    assert "layer 1" not in verdicts(manager)


def test_the_same_engine_again_is_one(manager: CacheManager) -> None:
    assert Engine(tiny_model(torch.float32), manager).generate(request(PROMPT), 3).resumed_at == 96


def test_versions_follow_the_compressors_weights_alone() -> None:
    model = build_tiny_model(5, torch.float32)
    layout = open_engine(tiny_model(torch.float32)).manager.layout
    group = layout.group("c4")
    before = compressor_version(model, group)
    with torch.no_grad():
        model.lm_head.weight[0, 0] += 1.0
    assert compressor_version(model, group) == before
    with torch.no_grad():
        model.model.layers[group.layers[0]].self_attn.compressor.indexer.kv_proj.weight[0, 0] += 1.0
    assert compressor_version(model, group) != before


def test_another_rotation_is_no_hit(manager: CacheManager) -> None:
    rope = Rope(10_000.0, 8, (("rope_type", "yarn"),))
    manager.register_abi("swa", abi_of(manager.layout, "swa", rope=rope))
    assert "ABI_MISMATCH" in verdicts(manager)


def test_it_tells_how_fast_it_computes(manager: CacheManager) -> None:
    rates = manager.explain(request(np.append(PROMPT, 1))).tokens_per_s
    assert rates != 10_000
    assert manager.stats().events["rates_observed"] >= 1

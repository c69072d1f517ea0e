"""The tiny model exercises every kind of state."""

from __future__ import annotations

from pathlib import Path

import torch
from transformers import DeepseekV4ForCausalLM

from kvstrata.engines.transformers.model import CSA, HCA, SLIDING, build_tiny_model, tiny_config

from .helpers import SEED, tokens
from .oracle import StockModel


def test_equal_seeds_give_equal_bytes_and_leave_the_global_generator_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    first, second = build_tiny_model(2), build_tiny_model(2)
    assert torch.equal(torch.rand(4), expected)
    other = build_tiny_model(4)
    for (name, left), right in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(left, right), name
    assert not torch.equal(first.lm_head.weight, other.lm_head.weight)


def test_nothing_stays_at_its_constant_initial_value(model: DeepseekV4ForCausalLM) -> None:
    state = dict(model.named_parameters()) | dict(model.named_buffers())
    tables = {name: value for name, value in state.items() if value.numel() > 1}
    constant = [name for name, value in tables.items() if bool((value == value.min()).all())]
    assert constant == []


def test_every_layer_and_router_type_is_there() -> None:
    config = tiny_config()
    assert set(config.layer_types or ()) == {SLIDING, CSA, HCA}
    assert set(config.mlp_layer_types or ()) == {"hash_moe", "moe"}


def test_selection_is_sparse_and_free_of_ties(model: DeepseekV4ForCausalLM) -> None:
    """Otherwise the index keys would not matter, or `topk` would break ties by length."""
    indexer = model.model.layers[1].self_attn.compressor.indexer
    scores = []
    hook = indexer.scorer.register_forward_hook(lambda *call: scores.append(call[2]))
    StockModel(model).forward(tokens(200).tolist())
    hook.remove()
    last = scores[0][0, -1].float()
    assert last.numel() == 50 > indexer.index_topk
    assert (last == 0).sum() == 0


def test_parameters_have_the_dtypes_of_a_loaded_checkpoint(
    model: DeepseekV4ForCausalLM, tmp_path: Path
) -> None:
    build_tiny_model(SEED).save_pretrained(tmp_path)
    loaded = DeepseekV4ForCausalLM.from_pretrained(tmp_path, dtype=model.dtype)
    for (name, ours), theirs in zip(model.named_parameters(), loaded.parameters(), strict=True):
        assert ours.dtype == theirs.dtype, name
        assert torch.equal(ours, theirs), name

"""The layout follows the dtypes of the loaded model."""

from __future__ import annotations

import pytest
import torch
from transformers import DeepseekV4ForCausalLM

from kvstrata import ConfigError, Kind
from kvstrata.engines.transformers.layout import layout_for_model
from kvstrata.engines.transformers.model import build_tiny_model

from .helpers import begin, open_engine, same, tokens
from .oracle import StockModel


def _dtypes(model: DeepseekV4ForCausalLM) -> dict[str, str]:
    return {
        f"{group.name}.{component.name}": component.dtype
        for group in layout_for_model(model).groups
        for component in group.components
    }


def test_overlap_gates_are_fp32_in_a_loaded_bf16_model() -> None:
    dtypes = _dtypes(build_tiny_model(0, torch.bfloat16))
    gates = {"c4.tail.overlap_gate", "c4.index.tail.overlap_gate"}
    assert {name for name, dtype in dtypes.items() if dtype == "fp32"} == gates
    assert {dtypes[name] for name in dtypes.keys() - gates} == {"bf16"}


def test_a_model_cast_whole_has_one_dtype_and_runs() -> None:
    model = build_tiny_model(0).bfloat16()
    assert set(_dtypes(model).values()) == {"bf16"}
    prompt = tokens(40)
    engine, stock = open_engine(model), StockModel(model)
    sequence = begin(engine, prompt)
    for call in (prompt[:21], prompt[21:29], prompt[29:30]):
        assert same(engine.forward(sequence, call), stock.forward(call.tolist()))


def test_layers_of_one_group_must_agree() -> None:
    model = build_tiny_model(0, torch.bfloat16)
    attention = model.model.layers[3].self_attn
    attention.compressor.gate_proj.float()
    with pytest.raises(ConfigError, match=r"c4\.tail\.gate.*torch\.bfloat16.*torch\.float32"):
        layout_for_model(model)


def test_all_kinds_are_there() -> None:
    layout = layout_for_model(build_tiny_model(0), rollback_tokens=5)
    assert [group.name for group in layout.groups] == [
        "c4", "c16", "c4.index", "swa", "c4.tail", "c4.index.tail", "c16.tail",
    ]  # fmt: skip
    assert {group.kind for group in layout.groups} == set(Kind) - {Kind.DISK}
    assert layout.block_tokens == 16
    assert layout.rollback_tokens == 5

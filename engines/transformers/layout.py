"""The cache layout of a loaded model, with the dtypes its parameters really have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from transformers import DeepseekV4ForCausalLM

from kvstrata import CacheLayout, ConfigError

__all__ = ["layout_for_model"]


def layout_for_model(
    model: DeepseekV4ForCausalLM, block_tokens: int | None = None, rollback_tokens: int = 8
) -> CacheLayout:
    """Lay out the cache of a model as it is loaded, which its configuration alone cannot tell.

    A bfloat16 checkpoint keeps position biases in float32, so that the overlap gate of its sparse
    layers is float32 while everything else is bfloat16; a model cast whole with ``.to()`` is not
    so. The cache checks every tensor it is given against this layout.

    Args:
        model: a loaded model.
        block_tokens: tokens of a block; the lcm of the compression ratios if None.
        rollback_tokens: the largest step, in tokens, that is rolled back without a second image.

    Returns:
        The layout.

    Raises:
        ConfigError: layers of one group differ in a dtype, or no layout holds one.
    """
    found: dict[str, torch.dtype] = {}
    for name, dtype in _component_dtypes(model):
        if found.setdefault(name, dtype) != dtype:
            raise ConfigError(
                f"model: expected one dtype of {name} in all layers, found {found[name]} and "
                f"{dtype}; load the model in one dtype"
            )
    return CacheLayout.from_hf_config(
        model.config,
        dtype=model.dtype,
        block_tokens=block_tokens,
        rollback_tokens=rollback_tokens,
        component_dtypes={name: str(dtype).removeprefix("torch.") for name, dtype in found.items()},
    )


def _component_dtypes(model: Any) -> Iterator[tuple[str, torch.dtype]]:
    """Yield ``group.component`` and its dtype, layer by layer."""
    for layer in model.model.layers:
        attention = layer.self_attn
        yield "swa.kv", attention.kv_proj.weight.dtype
        compressor = attention.compressor
        if compressor is None:
            continue
        group = f"c{compressor.compress_rate}"
        overlaps = hasattr(compressor, "indexer")
        yield from _compressor_dtypes(compressor, group, "entry", overlaps)
        if overlaps:
            yield from _compressor_dtypes(compressor.indexer, f"{group}.index", "key", overlaps)


def _compressor_dtypes(
    compressor: Any, group: str, entry: str, overlaps: bool
) -> Iterator[tuple[str, torch.dtype]]:
    kv, gate = compressor.kv_proj.weight.dtype, compressor.gate_proj.weight.dtype
    yield f"{group}.{entry}", kv
    yield f"{group}.tail.kv", kv
    yield f"{group}.tail.gate", gate
    if overlaps:
        yield f"{group}.tail.overlap_kv", kv
        # The gate carries the position bias by the time it is kept for the next window.
        biased = torch.promote_types(gate, compressor.position_bias.dtype)
        yield f"{group}.tail.overlap_gate", biased

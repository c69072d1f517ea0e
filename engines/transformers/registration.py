"""What the adapter tells the cache of itself: ABIs, kernels, and the version of each compressor."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import torch
import transformers
from torch import Tensor
from transformers import DeepseekV4ForCausalLM

from kvstrata import CacheManager, GroupSpec, Kind, Rope, abi_of

__all__ = ["compressor_version", "register"]

_KERNEL = "transformers.eager"


def register(model: DeepseekV4ForCausalLM, manager: CacheManager) -> None:
    """Register how the model's attention reads each group, and which compressors wrote it.

    Pages that another kernel laid out, or another compressor's weights made, are then no hit.

    Mutates: the manager.
    """
    for group in manager.layout.groups:
        abi = abi_of(
            manager.layout,
            group.name,
            rope=_rope(model.config, group),
            kernel=_KERNEL,
            kernel_version=transformers.__version__,
        )
        manager.register_abi(group.name, abi)
        manager.register_kernel(group.name, _KERNEL, transformers.__version__)
        if group.kind is Kind.COMPRESSED:
            manager.register_mapping(group.name, compressor_version(model, group))


def _rope(config: Any, group: GroupSpec) -> Rope:
    """Windows carry the rotation of their layer's type, so both bases; entries the compressors'."""
    parts = config.rope_parameters
    compress = parts["compress"]
    own = parts["main"] if group.kind is Kind.SWA else compress
    dim = int(config.head_dim * own["partial_rotary_factor"])
    scaling = {f"compress_{key}": compress[key] for key in ("rope_theta", "rope_type")}
    scaling |= {key: own[key] for key in own if key not in ("rope_theta", "partial_rotary_factor")}
    plain = {key: value for key, value in scaling.items() if isinstance(value, str | int | float)}
    return Rope(own["rope_theta"], dim, tuple(sorted(plain.items())))


def compressor_version(model: DeepseekV4ForCausalLM, group: GroupSpec) -> str:
    """Identity of the weights that compress a group's layers, indexer included: 32 hex digits."""
    digest = hashlib.sha256()
    for name, tensor in _compressor_weights(model, group):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(
            tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy().tobytes()
        )
    return digest.hexdigest()[:32]


def _compressor_weights(
    model: DeepseekV4ForCausalLM, group: GroupSpec
) -> Iterator[tuple[str, Tensor]]:
    for layer in group.layers:
        attention: Any = model.model.layers[layer].self_attn
        for name, parameter in attention.compressor.named_parameters():
            yield f"{layer}.{name}", parameter

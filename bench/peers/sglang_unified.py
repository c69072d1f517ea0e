"""SGLang's unified radix cache with full history and windows, its tree in Rust or in Python."""

from importlib.metadata import version
from typing import Any

import sglang_bytes
import sglang_kernels
from reachable import reachable
from sglang_common import PAGE, WINDOW, Sglang
from subject import Geometry, Subject

# isort: split
from sglang.srt.mem_cache.allocation import alloc_for_decode, alloc_for_extend
from sglang.srt.mem_cache.allocator import paged
from sglang.srt.mem_cache.allocator.swa import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import checkpoint_kv_cache, release_kv_cache
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.unified_cache.component_type import ComponentType
from sglang.srt.mem_cache.unified_radix_cache import UnifiedRadixCache
from sglang.srt.runtime_context import publish, reset_context
from sglang.srt.server_args import ServerArgs


def open_subject(
    geometry: Geometry, tree: str = "rust", split: str = "package", kernels: str = "short"
) -> Subject:
    return Unified(geometry, tree, split, kernels)


class Unified(Sglang):
    """Requests take the scheduler's path through the package's own functions.

    Args:
        geometry: the memory.
        tree: ``rust`` or ``python``.
        split: see :meth:`sglang_common.Sizes.of`.
        kernels: what makes slots: ``short`` is :mod:`sglang_kernels`, ``package`` its own fallback.
    """

    version = version("sglang")

    def __init__(self, geometry: Geometry, tree: str, split: str, kernels: str) -> None:
        reset_context()
        publish(ServerArgs(model_path="dummy", device="cpu", page_size=PAGE), role="scheduler")
        self._heap_before = sglang_bytes.heap()
        super().__init__(geometry, SWATokenToKVPoolAllocator, split)
        self._choose(kernels)
        self.name = f"SGLang unified, {tree.capitalize()} tree"
        cache = UnifiedRadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.allocator,
                page_size=PAGE,
                sliding_window_size=WINDOW,
                tree_components=(ComponentType.FULL, ComponentType.SWA),
                tree_core_backend=tree,
            )
        )
        kind = type(cache.tree_core).__name__
        if (tree == "rust") != kind.startswith("Rust"):
            raise RuntimeError(f"asked for the {tree} tree, the package made a {kind}")
        self._open_batches(cache)
        self._rust = tree == "rust"
        self.settings["tree"] = kind
        self.settings["components"] = ["full", "swa"]
        self.settings["state_bytes"] = sglang_bytes.HEAP if self._rust else sglang_bytes.REACHABLE

    def _choose(self, kernels: str) -> None:
        self.settings["allocation_kernels"] = kernels
        sglang_kernels.install(paged)
        for one in (self.allocator.full_attn_allocator, self.allocator.swa_attn_allocator):
            one.use_triton_kernels = kernels == "short"

    def match(self, request: Any) -> int:
        key = RadixKey(request.origin_input_ids)
        return int(self.tree.match_prefix(MatchPrefixParams(key=key)).device_prefix_len)

    def begin(self, request: Any) -> tuple[Any, int]:
        request.init_next_round_input(self.tree)
        request.lock = self.tree.lock(request.last_node)
        return request, request.prefix_len

    def extend(self, running: Any, num_tokens: int) -> None:
        start = running.prefix_len
        running.extend_end = start + num_tokens
        alloc_for_extend(self.prefill_batch(running, start, running.extend_end))
        running.extend_batch_idx += 1
        checkpoint_kv_cache(running, self.tree)

    def batch(self, running: list[Any]) -> Any:
        rows = [one.kv.req_pool_idx for one in running]
        return self.decode_batch(running, rows, [one.kv.kv_committed_len for one in running])

    def decode(self, batch: Any, tokens: Any) -> None:
        for one, token in zip(batch.reqs, tokens, strict=True):
            one.output_ids.append(token)
        batch.out_cache_loc = alloc_for_decode(batch, token_per_req=1)
        for one in batch.reqs:
            one.decode_batch_idx += 1
        batch.seq_lens = batch.seq_lens + 1
        batch.seq_lens_cpu = batch.seq_lens_cpu + 1

    def finish(self, running: Any) -> None:
        self.end(running)
        release_kv_cache(running, self.tree, checkpoint=True)

    def state_bytes(self) -> int:
        if self._rust:
            return sglang_bytes.heap() - self._heap_before - self.rows.req_to_token.nbytes
        return reachable(self.tree, leave_out=(self.rows,))

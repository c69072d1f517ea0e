"""SGLang's radix cache for full history and windows as version 0.5.12 has it."""

from importlib.metadata import version
from typing import Any

import numpy as np
import numpy.typing as npt
import sglang_bytes
import sglang_kernels
from reachable import reachable
from sglang_common import DIFFERENCES, PAGE, WINDOW, Sglang
from subject import Geometry, Subject

# isort: split
from sglang.srt.mem_cache import allocator as paged
from sglang.srt.mem_cache.base_prefix_cache import MatchPrefixParams
from sglang.srt.mem_cache.cache_init_params import CacheInitParams
from sglang.srt.mem_cache.common import alloc_for_decode, alloc_for_extend, release_kv_cache
from sglang.srt.mem_cache.radix_cache import RadixKey
from sglang.srt.mem_cache.swa_memory_pool import SWATokenToKVPoolAllocator
from sglang.srt.mem_cache.swa_radix_cache import SWARadixCache
from sglang.srt.server_args import ServerArgs, set_global_server_args_for_scheduler

OWN_DIFFERENCES = (
    "Windows of a whole prompt keep their slots until others need them, and a prefix whose last "
    "windows go is forgotten with its full history.",
)


def open_subject(geometry: Geometry, split: str = "package") -> Subject:
    return SlidingWindows(geometry, split)


class SlidingWindows(Sglang):
    """Requests take the scheduler's path through the package's own functions.

    Args:
        geometry: the memory.
        split: see :meth:`sglang_common.Sizes.of`.
    """

    name = "SGLang SWARadixCache"
    version = version("sglang")

    def __init__(self, geometry: Geometry, split: str) -> None:
        arguments = ServerArgs(
            model_path="dummy", device="cpu", page_size=PAGE, attention_backend="torch_native"
        )  # the backend decides only whether rows are written by torch or by a Triton kernel
        set_global_server_args_for_scheduler(arguments)
        sglang_kernels.install(paged)
        super().__init__(geometry, SWATokenToKVPoolAllocator, split)
        cache = SWARadixCache(
            CacheInitParams(
                disable=False,
                req_to_token_pool=self.rows,
                token_to_kv_pool_allocator=self.allocator,
                page_size=PAGE,
                sliding_window_size=WINDOW,
            )
        )
        self._open_batches(cache)
        self.differences = (*DIFFERENCES, *OWN_DIFFERENCES)
        self.settings["allocation_kernels"] = "short"
        self.settings["tree"] = type(cache).__name__
        self.settings["state_bytes"] = sglang_bytes.REACHABLE

    def prepare(self, tokens: npt.NDArray[np.int32]) -> Any:
        return tokens.tolist()

    def match(self, request: Any) -> int:
        key = RadixKey(request.origin_input_ids)
        return len(self.tree.match_prefix(MatchPrefixParams(key=key)).device_indices)

    def begin(self, request: Any) -> tuple[Any, int]:
        request.init_next_round_input(self.tree)
        lock = self.tree.inc_lock_ref(request.last_node)
        request.swa_uuid_for_lock = lock.swa_uuid_for_lock
        return request, len(request.prefix_indices)

    def extend(self, running: Any, num_tokens: int) -> None:
        start = len(running.prefix_indices)
        end = start + num_tokens
        running.fill_ids = running.origin_input_ids[:end]
        running.set_extend_input_len(num_tokens)
        _, _, rows = alloc_for_extend(self.prefill_batch(running, start, end))
        running.req_pool_idx = rows[0]
        running.extend_batch_idx += 1
        running.kv_committed_len = running.kv_allocated_len = end
        self.tree.cache_unfinished_req(running, chunked=end < len(running.origin_input_ids))

    def batch(self, running: list[Any]) -> Any:
        rows = [one.req_pool_idx for one in running]
        return self.decode_batch(running, rows, [one.kv_committed_len for one in running])

    def decode(self, batch: Any, tokens: Any) -> None:
        for one, token in zip(batch.reqs, tokens, strict=True):
            one.output_ids.append(token)
        batch.out_cache_loc = alloc_for_decode(batch, token_per_req=1)
        for one in batch.reqs:
            one.decode_batch_idx += 1
            one.kv_committed_len += 1
            one.kv_allocated_len += 1
        batch.seq_lens = batch.seq_lens + 1
        batch.seq_lens_cpu = batch.seq_lens_cpu + 1

    def finish(self, running: Any) -> None:
        self.end(running)
        release_kv_cache(running, self.tree)

    def state_bytes(self) -> int:
        return reachable(self.tree, leave_out=(self.rows,))

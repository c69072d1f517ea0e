"""What SGLang's subjects share: sizes, pools without storage, batches and a count of bytes held.

Import this module before anything of SGLang: it lets packages be absent that are never called.
"""

import gc
import itertools
from array import array
from dataclasses import dataclass
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from sglang_absent import resolve_absent
from subject import Geometry, Subject

ABSENT = resolve_absent("triton", "torchvision", "tvm_ffi")

import torch  # noqa: E402
from sglang.srt.managers.schedule_batch import FINISH_LENGTH, Req, ScheduleBatch  # noqa: E402
from sglang.srt.mem_cache.memory_pool import ReqToTokenPool  # noqa: E402
from sglang.srt.mem_cache.swa_memory_pool import SWAKVPool  # noqa: E402
from sglang.srt.model_executor.forward_batch_info import ForwardMode  # noqa: E402
from sglang.srt.sampling.sampling_params import SamplingParams  # noqa: E402
from sglang.srt.utils import DynamicGradMode  # noqa: E402

torch.set_num_threads(1)  # what a second thread computed would be missing from the caller's time
DynamicGradMode().__enter__()  # the mode in which the scheduler's loop runs, here for good

PAGE = 64
WINDOW = 128
FULL_TOKEN_BYTES = 3514.25
"""Compressed entries and index keys of DeepSeek-V4-Flash, a token."""
WINDOW_TOKEN_BYTES = 43 * 584
"""A token of the windows of all 43 layers."""
PACKAGE_RATIO = 0.1
"""Window slots per slot of full history that the package sets for DeepSeek-V4."""

DIFFERENCES = (
    "It hashes nothing: what stands as hash makes its request object, and prefixes are compared "
    "token by token.",
    "Its pages have 64 tokens, where it sets 256 for DeepSeek-V4; a prefix is found up to its last "
    "whole page, and at most to the token before the prompt's last.",
    "It has two kinds of slots, full history and windows: compressor tails and index keys have no "
    "pages of their own, and one window slot stands for a token of all 43 layers.",
    "It writes no log, and its events of stored blocks are off.",
    "Every chunk of a prompt but the last is published when the next step is scheduled, while its "
    "own may still run.",
    "Its scheduler's budgets for admission and its check before a decode step are not called.",
    "Its GPU kernels for slots are stood in for by short NumPy code (see sglang_kernels.py); the "
    "rest of its tensor calls runs on the processor as it is.",
)


@dataclass(frozen=True)
class Sizes:
    """Slots of both pools, whole pages."""

    full: int
    windows: int

    @staticmethod
    def of(geometry: Geometry, split: str) -> "Sizes":
        """Slots for a budget.

        Args:
            geometry: with the budget.
            split: ``package`` keeps the package's ratio of window slots to full slots, ``share``
                gives windows the geometry's part of the bytes.
        """
        if split == "package":
            full = geometry.budget_bytes / (FULL_TOKEN_BYTES + PACKAGE_RATIO * WINDOW_TOKEN_BYTES)
            windows = full * PACKAGE_RATIO
        else:
            windows = geometry.budget_bytes * geometry.checkpoint_share / WINDOW_TOKEN_BYTES
            full = geometry.budget_bytes * (1 - geometry.checkpoint_share) / FULL_TOKEN_BYTES
        return Sizes(int(full) // PAGE * PAGE, int(windows) // PAGE * PAGE)


class PoolWithoutStorage(SWAKVPool):
    """The package's pair of pools without their buffers: only what the allocators ask for."""

    def __init__(self) -> None:
        self.full_kv_pool = self.swa_kv_pool = None
        self.full_to_swa_index_mapping = None


@cache
def _freeze_modules() -> None:
    """Spare collections the package's modules, as a server can; once, before any pool is made."""
    gc.collect()
    gc.freeze()


def _rows(requests: int, tokens: int) -> ReqToTokenPool:
    """The package's table of slots by request, on memory that is only taken where it is used.

    It would zero the whole table, 4.5 GB for 256 requests of 4.4 million tokens.
    """
    pool = ReqToTokenPool(size=requests, max_context_len=1, device="cpu", enable_memory_saver=False)
    pool.max_context_len = tokens
    pool.req_to_token = torch.from_numpy(np.zeros((requests + 1, tokens), dtype=np.int32))
    return pool


class Sglang(Subject):
    """Paged allocators and rows as the scheduler makes them; a subclass adds the tree.

    Args:
        geometry: the memory.
        allocator: the package's class for full history and windows.
        split: see :meth:`Sizes.of`.
    """

    def __init__(self, geometry: Geometry, allocator: type[Any], split: str) -> None:
        super().__init__(geometry)
        _freeze_modules()
        self.differences = DIFFERENCES
        self.sizes = Sizes.of(geometry, split)
        self.rows = _rows(geometry.max_sequences, geometry.max_tokens + PAGE)
        self.allocator = allocator(
            self.sizes.full,
            self.sizes.windows,
            page_size=PAGE,
            dtype=torch.uint8,
            device="cpu",
            kvcache=PoolWithoutStorage(),
            need_sort=False,
        )
        self.settings = {
            "page_tokens": PAGE,
            "window_tokens": WINDOW,
            "split": split,
            "pools": {"full": self.sizes.full, "windows": self.sizes.windows},
            "bytes_of_a_slot": {"full": FULL_TOKEN_BYTES, "windows": WINDOW_TOKEN_BYTES},
            "key_value_buffers": "none: the pool object has no storage",
            "events": "off",
            "device": "cpu",
            "torch": f"{torch.__version__}, one thread",
            "absent_packages": list(ABSENT),
        }
        self._names = itertools.count()
        self._sampling = SamplingParams(max_new_tokens=1 << 20)
        self._prefill: Any = None

    def _open_batches(self, tree: Any) -> None:
        """Prefill batches are one object, so that nobody pays for making it again."""
        self.tree = tree
        self._prefill = self._new_batch([], ForwardMode.EXTEND)

    def _new_batch(self, requests: list[Any], mode: ForwardMode) -> Any:
        batch = ScheduleBatch(
            reqs=requests,
            req_to_token_pool=self.rows,
            token_to_kv_pool_allocator=self.allocator,
            tree_cache=self.tree,
            model_config=SimpleNamespace(is_encoder_decoder=False),
            device="cpu",
        )
        batch.forward_mode = mode
        return batch

    def prepare(self, tokens: npt.NDArray[np.int32]) -> Any:
        return array("q", tokens.astype(np.int64).tobytes())

    def request(self, prepared: Any) -> Any:
        return Req(str(next(self._names)), "", prepared, self._sampling)

    def prefill_batch(self, running: Any, start: int, end: int) -> Any:
        """One request's chunk as the scheduler's batch describes it to the allocation."""
        batch = self._prefill
        batch.reqs = [running]
        batch.prefix_lens = [start]
        batch.extend_lens = [end - start]
        batch.extend_num_tokens = end - start
        batch.seq_lens = torch.tensor([end], dtype=torch.int64)
        batch.seq_lens_cpu = torch.tensor([end], dtype=torch.int64)
        return batch

    def decode_batch(self, running: list[Any], rows: list[int], lengths: list[int]) -> Any:
        """Running requests as the scheduler's batch, with the slots each one holds."""
        batch = self._new_batch(list(running), ForwardMode.DECODE)
        batch.req_pool_indices = torch.tensor(rows, dtype=torch.int64)
        batch.req_pool_indices_cpu = batch.req_pool_indices
        batch.seq_lens = torch.tensor(lengths, dtype=torch.int64)
        batch.seq_lens_cpu = batch.seq_lens.clone()
        return batch

    def end(self, running: Any) -> None:
        """Mark a request as ended, as the scheduler does before it releases one."""
        running.finished_reason = FINISH_LENGTH(len(running.output_ids))

    def close(self) -> None:
        self.tree = self.allocator = self.rows = self._prefill = None

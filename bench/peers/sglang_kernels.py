"""What the package's two allocation kernels compute, on the processor.

On a GPU a batch's slots are written by a Triton kernel, and the caller pays one launch. Without
Triton SGLang 0.5.12 has nothing in their place, and 0.5.23 has chains of torch calls that cost a
chunk of 8192 tokens about a millisecond each. These are short enough to cost about what a launch
does, so that nobody is measured by a fallback that nobody serves with.
"""

from collections.abc import Callable
from types import ModuleType
from typing import Any

import numpy as np


class OnProcessor:
    """A function that is launched as a Triton kernel is: ``kernel[grid](...)``."""

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function

    def __getitem__(self, grid: Any) -> Callable[..., None]:
        return self._function


def extend(
    prefix_lens: Any,
    seq_lens: Any,
    last_loc: Any,
    free_pages: Any,
    out_indices: Any,
    batch_bound: int,
    page: int,
) -> None:
    """Slots of each request's new tokens: the rest of its last page, then new pages."""
    out, free = out_indices.numpy(), free_pages.numpy()
    within = np.arange(page, dtype=np.int64)
    at = taken = 0
    requests = zip(prefix_lens.tolist(), seq_lens.tolist(), last_loc.tolist(), strict=True)
    for prefix, end, last in requests:
        head = min(-prefix % page, end - prefix)
        out[at : at + head] = within[:head] + (last + 1)
        rest = end - prefix - head
        pages = -(-rest // page)
        slots = free[taken : taken + pages, None] * page + within
        out[at + head : at + head + rest] = slots.reshape(-1)[:rest]
        at += head + rest
        taken += pages


def decode(
    seq_lens: Any, last_loc: Any, free_pages: Any, out_indices: Any, batch_bound: int, page: int
) -> None:
    """The slot of each request's next token: after its last one, or a new page."""
    out, free = out_indices.numpy(), free_pages.numpy()
    np.add(last_loc.numpy(), 1, out=out)
    turned = np.flatnonzero(seq_lens.numpy() % page == 1)
    if 0 < len(turned) <= len(free):  # with too few pages the allocator refuses afterwards
        out[turned] = free[: len(turned)] * page


def install(module: ModuleType) -> None:
    """Let the module that holds the paged allocator launch these."""
    module.alloc_extend_kernel = OnProcessor(extend)
    module.alloc_decode_kernel = OnProcessor(decode)

"""The page checksum of a pool's pages; ``kvstrata.core.checksum`` defines it."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvstrata.core.checksum import checksum_pages

from .reference import page_checksums_reference

__all__ = ["page_checksums", "page_checksums_reference"]


def page_checksums(storage: torch.Tensor, slots: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """Checksum pages of a pool in host memory, without holding the interpreter lock.

    Args:
        storage: uint8[num_slots, page_bytes], contiguous, ``page_bytes`` a multiple of 8.
        slots: integers[n], each in ``[0, num_slots)``.

    Returns:
        int64[n], the checksum of each page.

    Raises:
        InvariantViolation: a slot outside the pool.
    """
    return checksum_pages(storage.numpy().view(np.uint64), slots)

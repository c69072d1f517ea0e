"""Copying whole pages inside a pool."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from kvstrata.core import pages

from .reference import copy_pages_reference

__all__ = ["copy_pages", "copy_pages_reference"]


def copy_pages(
    storage: torch.Tensor,
    source_slots: NDArray[np.integer[Any]],
    target_slots: NDArray[np.integer[Any]],
) -> None:
    """Copy page ``source_slots[i]`` to page ``target_slots[i]`` for every ``i``.

    Args:
        storage: uint8[num_slots, page_bytes], contiguous, in host memory.
        source_slots: integers[n], slots to read; a slot may be read many times.
        target_slots: integers[n], slots to write; none twice, and none that is read.

    Raises:
        InvariantViolation: a slot outside the pool, or a target that is read or written twice.

    Mutates: the target pages, only if nothing is raised.
    """
    pages.copy_pages(storage.numpy().view(np.uint64), source_slots, target_slots)

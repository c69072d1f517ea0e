"""What gathering means: one entry or row at a time."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["gather_entries_reference", "gather_ring_reference"]


def gather_entries_reference(
    view: torch.Tensor, slots: NDArray[np.integer[Any]], first: int, last: int
) -> torch.Tensor:
    """Read entries ``[first, last)`` of a sequence, all layers.

    Args:
        view: [num_slots, layers, entries a page, *shape] on any device.
        slots: integers[num_blocks], the sequence's pages in order.
        first: first entry.
        last: one past the last entry.

    Returns:
        Tensor [layers, last - first, *shape].
    """
    result = view.new_empty((view.shape[1], last - first, *view.shape[3:]))
    for entry in range(first, last):
        block, row = divmod(entry, view.shape[2])
        result[:, entry - first] = view[int(slots[block]), :, row]
    return result


def gather_ring_reference(view: torch.Tensor, slot: int, first: int, last: int) -> torch.Tensor:
    """Read positions ``[first, last)`` of a ring page, all layers.

    Args:
        view: [num_slots, layers, rows, *shape] on any device.
        slot: the page.
        first: first position.
        last: one past the last position.

    Returns:
        Tensor [layers, last - first, *shape].
    """
    result = view.new_empty((view.shape[1], last - first, *view.shape[3:]))
    for position in range(first, last):
        result[:, position - first] = view[slot, :, position % view.shape[2]]
    return result

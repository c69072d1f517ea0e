"""What scattering means: one entry or row at a time."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

__all__ = ["scatter_entries_reference", "scatter_ring_reference"]


def scatter_entries_reference(
    view: torch.Tensor, slots: NDArray[np.integer[Any]], first: int, values: torch.Tensor
) -> None:
    """Write entries of a sequence, from ``first`` on, all layers.

    Args:
        view: [num_slots, layers, entries a page, *shape] on any device.
        slots: integers[num_blocks], the sequence's pages in order.
        first: first entry.
        values: [layers, n, *shape].

    Mutates: the entries' rows.
    """
    for index in range(values.shape[1]):
        block, row = divmod(first + index, view.shape[2])
        view[int(slots[block]), :, row] = values[:, index]


def scatter_ring_reference(view: torch.Tensor, slot: int, first: int, values: torch.Tensor) -> None:
    """Write positions of a ring page, from ``first`` on, all layers.

    Args:
        view: [num_slots, layers, rows, *shape] on any device.
        slot: the page.
        first: first position.
        values: [layers, n, *shape].

    Mutates: the positions' rows.
    """
    for index in range(values.shape[1]):
        view[slot, :, (first + index) % view.shape[2]] = values[:, index]

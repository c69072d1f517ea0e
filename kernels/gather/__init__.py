"""Reading entries of a sequence, or rows of a ring, out of pages into a dense tensor."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..ranges import entry_spans, layer_views, ring_spans, value_views
from .reference import gather_entries_reference, gather_ring_reference

__all__ = [
    "gather_entries",
    "gather_entries_reference",
    "gather_ring",
    "gather_ring_reference",
]


def _target(
    view: torch.Tensor, num_rows: int, layer: int | None, out: torch.Tensor | None
) -> torch.Tensor:
    if out is not None:
        return out
    layers = () if layer is not None else (view.shape[1],)
    return view.new_empty((*layers, num_rows, *view.shape[3:]))


def gather_entries(
    view: torch.Tensor,
    slots: NDArray[np.integer[Any]],
    first: int,
    last: int,
    layer: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Read entries ``[first, last)`` of a sequence through its slot table.

    Args:
        view: [num_slots, layers, entries a page, *shape], from ``PoolSet.view``.
        slots: integers[num_blocks], the sequence's pages in order.
        first: first entry, counted from the sequence's start.
        last: one past the last entry.
        layer: index of one layer in the group; all layers if None.
        out: where to write; a new tensor if None.

    Returns:
        Tensor [last - first, *shape], or [layers, last - first, *shape] for all layers.

    Raises:
        InvariantViolation: entries beyond the slot table, a slot outside the pool, no such layer,
            or an ``out`` of another dtype or shape.

    Mutates: ``out``.
    """
    spans = entry_spans(view, slots, first, last)
    result = _target(view, last - first, layer, out)
    targets = value_views(view, layer, last - first, result)
    whole = torch.from_numpy(spans.slots)
    until = spans.at + len(whole) * view.shape[2]
    for pages, target in zip(layer_views(view, layer), targets, strict=True):
        if len(whole):
            dense = target[spans.at : until].view(len(whole), *pages.shape[1:])
            torch.index_select(pages, 0, whole, out=dense)
        for part in spans.partials:
            target[part.at : part.until] = pages[part.slot, part.first_row : part.last_row]
    return result


def gather_ring(
    view: torch.Tensor,
    slot: int,
    first: int,
    last: int,
    layer: int | None = None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Read positions ``[first, last)`` of a ring page, oldest first.

    Args:
        view: [num_slots, layers, rows, *shape], from ``PoolSet.view``.
        slot: the page.
        first: first position (of a token, or of a closed window for ``overlap_`` components).
        last: one past the last position; at most ``rows`` after ``first``.
        layer: index of one layer in the group; all layers if None.
        out: where to write; a new tensor if None.

    Returns:
        Tensor [last - first, *shape], or [layers, last - first, *shape] for all layers.

    Raises:
        InvariantViolation: more positions than rows, a slot outside the pool, no such layer, or
            an ``out`` of another dtype or shape.

    Mutates: ``out``.
    """
    spans = ring_spans(view, slot, first, last)
    result = _target(view, last - first, layer, out)
    targets = value_views(view, layer, last - first, result)
    for pages, target in zip(layer_views(view, layer), targets, strict=True):
        for part in spans:
            target[part.at : part.until] = pages[part.slot, part.first_row : part.last_row]
    return result

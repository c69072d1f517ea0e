"""Writing entries of a sequence, or rows of a ring, from a dense tensor into pages."""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..ranges import entry_spans, layer_views, ring_spans, value_views
from .reference import scatter_entries_reference, scatter_ring_reference

__all__ = [
    "scatter_entries",
    "scatter_entries_reference",
    "scatter_ring",
    "scatter_ring_reference",
]


def scatter_entries(
    view: torch.Tensor,
    slots: NDArray[np.integer[Any]],
    first: int,
    values: torch.Tensor,
    layer: int | None = None,
) -> None:
    """Write entries of a sequence, from ``first`` on, through its slot table.

    Args:
        view: [num_slots, layers, entries a page, *shape], from ``PoolSet.view``.
        slots: integers[num_blocks], the sequence's pages in order, no slot twice.
        first: first entry, counted from the sequence's start.
        values: [n, *shape] for one layer, [layers, n, *shape] for all; the view's dtype.
        layer: index of one layer in the group; all layers if None.

    Raises:
        InvariantViolation: entries beyond the slot table, a slot outside the pool, no such layer,
            or values of another dtype or shape.

    Mutates: the entries' rows, only if nothing is raised.
    """
    num_entries = values.shape[0 if layer is not None else 1]
    spans = entry_spans(view, slots, first, first + num_entries)
    pages_of = layer_views(view, layer)
    until = spans.at + len(spans.slots) * view.shape[2]
    for pages, dense in zip(pages_of, value_views(view, layer, num_entries, values), strict=True):
        if len(spans.slots):
            whole = dense[spans.at : until].view(len(spans.slots), *pages.shape[1:])
            _write_pages(pages, spans.slots, whole)
        for part in spans.partials:
            pages[part.slot, part.first_row : part.last_row] = dense[part.at : part.until]


def _write_pages(pages: torch.Tensor, slots: NDArray[np.int64], whole: torch.Tensor) -> None:
    # As bytes and in numpy: several times faster here than torch's index_copy_.
    source = whole.detach().contiguous().view(torch.uint8).numpy()
    pages.view(torch.uint8).numpy()[slots] = source


def scatter_ring(
    view: torch.Tensor, slot: int, first: int, values: torch.Tensor, layer: int | None = None
) -> None:
    """Write positions of a ring page, from ``first`` on.

    Args:
        view: [num_slots, layers, rows, *shape], from ``PoolSet.view``.
        slot: the page.
        first: first position (of a token, or of a closed window for ``overlap_`` components).
        values: [n, *shape] for one layer, [layers, n, *shape] for all, ``n <= rows``; the view's
            dtype.
        layer: index of one layer in the group; all layers if None.

    Raises:
        InvariantViolation: more positions than rows, a slot outside the pool, no such layer, or
            values of another dtype or shape.

    Mutates: the positions' rows, only if nothing is raised.
    """
    num_rows = values.shape[0 if layer is not None else 1]
    spans = ring_spans(view, slot, first, first + num_rows)
    pages_of = layer_views(view, layer)
    for pages, dense in zip(pages_of, value_views(view, layer, num_rows, values), strict=True):
        for part in spans:
            pages[part.slot, part.first_row : part.last_row] = dense[part.at : part.until]

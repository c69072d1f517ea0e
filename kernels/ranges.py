"""Which pages and rows a range of entries or positions covers, checked against the pool."""

from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from kvstrata.core.errors import InvariantViolation

__all__ = ["EntrySpans", "Partial", "entry_spans", "layer_views", "ring_spans", "value_views"]


class Partial(NamedTuple):
    """Rows ``[first_row, last_row)`` of one page; they begin at ``at`` in the dense tensor."""

    slot: int
    first_row: int
    last_row: int
    at: int

    @property
    def until(self) -> int:
        """Where the rows end in the dense tensor."""
        return self.at + self.last_row - self.first_row


class EntrySpans(NamedTuple):
    """A range of entries as whole pages, and at most one page's part before and after them.

    ``slots`` is int64[k], the whole pages; their entries begin at ``at`` in the dense tensor.
    """

    partials: list[Partial]
    slots: NDArray[np.int64]
    at: int


def entry_spans(
    view: torch.Tensor, slots: NDArray[np.integer[Any]], first: int, last: int
) -> EntrySpans:
    """Split entries ``[first, last)`` of a sequence into parts of its pages.

    Args:
        view: [num_slots, layers, entries a page, *shape].
        slots: integers[num_blocks], the sequence's pages in order.
        first: first entry.
        last: one past the last entry.

    Raises:
        InvariantViolation: entries beyond the sequence's pages, or a slot outside the pool.
    """
    per_page = view.shape[2]
    if not 0 <= first <= last <= len(slots) * per_page:
        raise InvariantViolation(
            f"entries: expected a range within [0, {len(slots) * per_page}), "
            f"found [{first}, {last})"
        )
    head, tail = first % per_page, last % per_page
    first_block, first_whole, last_whole = (
        first // per_page,
        -(-first // per_page),
        last // per_page,
    )
    used = np.asarray(slots[first_block : -(-last // per_page)], dtype=np.int64)
    if used.size and (used.min() < 0 or used.max() >= view.shape[0]):
        raise InvariantViolation(
            f"entries: expected slots in [0, {view.shape[0]}), found {used.tolist()}"
        )
    partials: list[Partial] = []
    if first == last:
        return EntrySpans(partials, used[:0], 0)
    if last_whole < first_whole:
        partials.append(Partial(int(used[0]), head, tail, 0))
        return EntrySpans(partials, used[:0], 0)
    if head:
        partials.append(Partial(int(used[0]), head, per_page, 0))
    if tail:
        partials.append(Partial(int(used[-1]), 0, tail, last_whole * per_page - first))
    whole = used[first_whole - first_block : last_whole - first_block]
    return EntrySpans(partials, whole, first_whole * per_page - first)


def ring_spans(view: torch.Tensor, slot: int, first: int, last: int) -> list[Partial]:
    """Split positions ``[first, last)`` of a ring page, row ``position % rows``, at its end.

    Args:
        view: [num_slots, layers, rows, *shape].
        slot: the page.
        first: first position (or closed window).
        last: one past the last one.

    Raises:
        InvariantViolation: more positions than rows, or a slot outside the pool.
    """
    rows = view.shape[2]
    if not 0 <= slot < view.shape[0]:
        raise InvariantViolation(f"ring: expected a slot in [0, {view.shape[0]}), found {slot}")
    if not 0 <= first <= last or last - first > rows:
        raise InvariantViolation(
            f"ring: expected a range of at most {rows} positions, found [{first}, {last})"
        )
    if first == last:
        return []
    begin, length = first % rows, last - first
    if begin + length <= rows:
        return [Partial(slot, begin, begin + length, 0)]
    return [
        Partial(slot, begin, rows, 0),
        Partial(slot, 0, begin + length - rows, rows - begin),
    ]


def layer_views(view: torch.Tensor, layer: int | None) -> list[torch.Tensor]:
    """The pages of one layer, or of each: tensors [num_slots, rows, *shape].

    Raises:
        InvariantViolation: no such layer in the group.
    """
    if layer is None:
        return list(view.unbind(1))
    if not 0 <= layer < view.shape[1]:
        raise InvariantViolation(f"layer: expected an index in [0, {view.shape[1]}), found {layer}")
    return [view[:, layer]]


def value_views(
    view: torch.Tensor, layer: int | None, num_rows: int, values: torch.Tensor
) -> list[torch.Tensor]:
    """The dense tensor's part of one layer, or of each: tensors [num_rows, *shape].

    Raises:
        InvariantViolation: another dtype or shape than the view's; nothing is ever cast.
    """
    shape = (num_rows, *view.shape[3:])
    expected = shape if layer is not None else (view.shape[1], *shape)
    if values.dtype != view.dtype or tuple(values.shape) != expected:
        raise InvariantViolation(
            f"values: expected {view.dtype} {list(expected)}, "
            f"found {values.dtype} {list(values.shape)}"
        )
    return [values] if layer is not None else list(values.unbind(0))

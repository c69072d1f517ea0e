"""Rows of the pools: ranges of entries and of ring positions, and checked access to them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from kvstrata import (
    CacheManager,
    ConfigError,
    InvariantViolation,
    PoolSet,
    Sequence,
    copy_pages,
    gather_entries,
    gather_ring,
    scatter_entries,
    scatter_ring,
)

__all__ = ["EntryRange", "LayerRows", "PoolRows", "RingRange", "pools_of"]


@dataclass(frozen=True)
class EntryRange:
    """The entries [first, last) of a sequence.

    Args:
        slots: int32 [blocks], the sequence's pages of a history group in order.
        per_page: entries of one page.
        first: first entry.
        last: one past the last entry.
    """

    slots: NDArray[np.int32]
    per_page: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def pages(self) -> NDArray[np.int32]:
        """The slots that hold these entries."""
        return self.slots[self.first // self.per_page : -(-self.last // self.per_page)]


@dataclass(frozen=True)
class RingRange:
    """The positions, or closed windows, [first, last) of a state image.

    Args:
        slot: the image's page.
        first: first position.
        last: one past the last position.
    """

    slot: int
    first: int
    last: int

    def __len__(self) -> int:
        return self.last - self.first

    @property
    def pages(self) -> NDArray[np.int32]:
        """The slot that holds these rows."""
        return np.array([self.slot], dtype=np.int32)


class LayerRows:
    """The rows of one component of one layer, in all pages of its pool."""

    def __init__(self, manager: CacheManager, group: str, component: str, layer: int) -> None:
        self._manager = manager
        self._group = group
        self._name = f"{group}.{component}"
        self._view = pools_of(manager).view(group, component)
        self._index = manager.layout.group(group).layers.index(layer)

    def read(self, at: EntryRange | RingRange) -> Tensor:
        """Copy rows out of the pool.

        Returns:
            [1, count, *row shape], a batch of one in new memory.
        """
        if isinstance(at, EntryRange):
            rows = gather_entries(self._view, at.slots, at.first, at.last, self._index)
        else:
            rows = gather_ring(self._view, at.slot, at.first, at.last, self._index)
        return rows.unsqueeze(0)

    def write(self, sequence: Sequence, at: EntryRange | RingRange, values: Tensor) -> None:
        """Write the last rows of `values` into pages of a sequence that are not sealed.

        Args:
            sequence: owns the pages.
            at: where, count rows.
            values: [1, count or more, *row shape] in the component's dtype.

        Raises:
            ConfigError: `values` has another dtype or shape than the layout.
            InvariantViolation: a page is sealed, another sequence's or nobody's.

        Mutates: the pool.
        """
        count, row_shape = len(at), self._view.shape[3:]
        if (
            values.dtype != self._view.dtype
            or values.shape[0] != 1
            or values.shape[1] < count
            or values.shape[2:] != row_shape
        ):
            raise ConfigError(
                f"{self._name}: expected {count} rows or more of {self._view.dtype} "
                f"{list(row_shape)} for one sequence, found {values.dtype} {list(values.shape)}; "
                "open the pools with layout_for_model(model)"
            )
        if count == 0:
            return
        _check_writable(self._manager, self._group, at.pages, sequence)
        rows = values[0, values.shape[1] - count :]
        if isinstance(at, EntryRange):
            scatter_entries(self._view, at.slots, at.first, rows, self._index)
        else:
            scatter_ring(self._view, at.slot, at.first, rows, self._index)


class PoolRows:
    """The rows of every component of every layer, looked up once for all steps."""

    def __init__(self, manager: CacheManager) -> None:
        self.manager = manager
        self._rows = {
            (group.name, component.name, layer): LayerRows(
                manager, group.name, component.name, layer
            )
            for group in manager.layout.groups
            for component in group.components
            for layer in group.layers
        }

    def __call__(self, group: str, component: str, layer: int) -> LayerRows:
        """Look the rows of one component of one layer up."""
        return self._rows[group, component, layer]

    def copy_page(self, sequence: Sequence, group: str, source: int, target: int) -> None:
        """Copy a whole page into one of a sequence that is not sealed.

        Raises:
            InvariantViolation: the target is sealed, another sequence's or nobody's.

        Mutates: the pool.
        """
        pages = np.array([target], np.int32)
        _check_writable(self.manager, group, pages, sequence)
        copy_pages(pools_of(self.manager).storage(group), np.array([source], np.int32), pages)


def pools_of(manager: CacheManager) -> PoolSet:
    """The pools of a manager.

    Raises:
        ConfigError: it was opened without.
    """
    if manager.pools is None:
        raise ConfigError(
            "expected a manager with pools, found one of metadata alone; open it with "
            "pools='private' or pools='shared'"
        )
    return manager.pools


def _check_writable(
    manager: CacheManager, group: str, pages: NDArray[np.int32], sequence: Sequence
) -> None:
    if not manager.writable(group, pages, sequence):
        raise InvariantViolation(
            f"{group}: expected pages that a step of {sequence!r} may write, found one that is "
            f"sealed, free or another's among the slots {pages.tolist()}; nothing was written"
        )

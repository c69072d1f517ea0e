"""The bytes behind the tables: checksums of pages, and copies of state images."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import open_tables
from kvstrata.core.errors import ConfigError
from kvstrata.core.layout import CacheLayout
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    PAGE_CHECKSUM,
    PAGE_GENERATION,
    PAGE_STATE,
    POOL_FIRST,
    Arena,
)

if TYPE_CHECKING:
    from kvstrata.kernels.pools import PoolSet

__all__ = ["BadPage", "Storage"]


@dataclass(frozen=True)
class BadPage:
    """A page whose bytes are not what was sealed.

    Attributes:
        group: number of its group.
        slot: its slot.
        generation: its generation.
        expected: checksum in the table.
        found: checksum of the bytes.
    """

    group: int
    slot: int
    generation: int
    expected: int
    found: int


class Storage:
    """A manager's pools, addressed by blocks and images.

    Args:
        layout: the layout.
        arena: the arena whose pages the pools hold.
        pools: the pools, of the same layout and slots.

    Raises:
        ConfigError: the pools are of another layout or have other slots.
    """

    def __init__(self, layout: CacheLayout, arena: Arena, pools: "PoolSet") -> None:
        if pools.layout.digest() != layout.digest():
            raise ConfigError(
                f"pools: expected layout {layout.name!r}, found {pools.layout.name!r}"
            )
        self._tables = open_tables(arena)
        self._names = [group.name for group in layout.groups]
        self._num_history = len(layout.history_groups)
        self.pools = pools
        for number, name in enumerate(self._names):
            expected = int(self._tables.pools[number, 1])
            if pools.num_slots(name) != expected:
                raise ConfigError(
                    f"pool {name!r}: expected {expected} slots, found {pools.num_slots(name)}"
                )

    def over(self, arena: Arena) -> "Storage":
        """The same bytes, seen through another copy of the tables."""
        return Storage(self.pools.layout, arena, self.pools)

    def block_checksums(self, blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Checksums of blocks' pages: int64[n, history groups]."""
        return self._checksums(self._tables.blocks.pages[blocks], 0)

    def image_checksums(self, images: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        """Checksums of images' pages: int64[n, state groups]."""
        return self._checksums(self._tables.images.pages[images], self._num_history)

    def _checksums(self, slots: npt.NDArray[np.int64], first: int) -> npt.NDArray[np.int64]:
        sums: npt.NDArray[np.int64] = np.empty(slots.shape, dtype=np.int64)
        for part in range(slots.shape[1]):
            sums[:, part] = self.pools.checksums(self._names[first + part], slots[:, part])
        return sums

    def copy_images(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Copy whole state images, page by page of every state group."""
        source_pages = self._tables.images.pages[np.fromiter(sources, np.int64)]
        target_pages = self._tables.images.pages[np.fromiter(targets, np.int64)]
        for part, name in enumerate(self._names[self._num_history :]):
            self.pools.copy(name, source_pages[:, part], target_pages[:, part])

    def copy_blocks(self, sources: Iterable[int], targets: Iterable[int]) -> None:
        """Copy whole blocks, page by page of every history group."""
        source_pages = self._tables.blocks.pages[np.fromiter(sources, np.int64)]
        target_pages = self._tables.blocks.pages[np.fromiter(targets, np.int64)]
        for part, name in enumerate(self._names[: self._num_history]):
            self.pools.copy(name, source_pages[:, part], target_pages[:, part])

    def bad_pages(
        self, blocks: npt.NDArray[np.int64], images: npt.NDArray[np.int64]
    ) -> list[BadPage]:
        """Sealed pages of these blocks and images whose bytes differ from their checksums."""
        found: list[BadPage] = []
        history, states = self._tables.blocks.pages[blocks], self._tables.images.pages[images]
        for group in range(len(self._names)):
            slots = (
                history[:, group]
                if group < self._num_history
                else states[:, group - self._num_history]
            )
            found += self.bad_in_group(group, slots)
        return found

    def bad_in_group(self, group: int, slots: npt.NDArray[np.int64]) -> list[BadPage]:
        """Sealed pages of one group whose bytes differ from their checksums."""
        if len(slots) == 0:
            return []
        rows = self._tables.pages[int(self._tables.pools[group, POOL_FIRST]) + slots]
        sums = self.pools.checksums(self._names[group], slots)
        wrong = (sums != rows[:, PAGE_CHECKSUM]) & (rows[:, PAGE_STATE] == PageState.SEALED)
        return [
            BadPage(
                group,
                int(slots[number]),
                int(rows[number, PAGE_GENERATION]),
                int(rows[number, PAGE_CHECKSUM]),
                int(sums[number]),
            )
            for number in np.flatnonzero(wrong).tolist()
        ]

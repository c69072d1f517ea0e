"""Objects of this engine's pages: what they must agree on, and where their bytes lie."""

import numpy as np
import numpy.typing as npt

from kvstrata.core.arena import open_tables
from kvstrata.core.checksum import checksum_pages
from kvstrata.core.keys import words_key
from kvstrata.core.layout import CacheLayout
from kvstrata.core.words import (
    PAGE_CHECKSUM,
    POOL_ABI,
    POOL_FIRST,
    POOL_PARTNER,
    POOL_VERSION,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_PARENT_KEY_0,
    UNIT_PARENT_KEY_1,
    UNIT_POSITION,
    Arena,
)
from kvstrata.tiers.format import Header, ObjectId, Part, Schema

from .registering import Registrar
from .storage import Storage

__all__ = ["Objects", "PageTargets"]


class Objects:
    """Objects made of one manager's pages.

    Args:
        layout: the layout.
        arena: the tables.
        storage: the bytes; None for a manager of metadata, whose objects have none.
        registrar: knows the groups' ABIs.
    """

    def __init__(
        self, layout: CacheLayout, arena: Arena, storage: Storage | None, registrar: Registrar
    ) -> None:
        self._layout = layout
        self._tables = open_tables(arena)
        # Pools never move.
        names = [] if storage is None else [group.name for group in layout.groups]
        self._words = [] if storage is None else [storage.pools.words(name) for name in names]
        self._registrar = registrar
        self._num_history = len(layout.history_groups)
        self._made_for = b""
        self._schema: Schema | None = None

    def schema(self) -> Schema:
        """What objects written and read now must agree on; the same value until that changes."""
        now = self.readers()
        if self._schema is None or now != self._made_for:
            parts = tuple(self._part(number) for number in range(len(self._layout.groups)))
            history = self._num_history
            self._schema = Schema(
                self._layout.digest(),
                self._layout.block_tokens,
                parts[:history],
                parts[history:],
            )
            self._made_for = now
        return self._schema

    def readers(self) -> bytes:
        """The words of all groups' ABIs and mappings as they are now."""
        return self._tables.pools[:, [POOL_ABI, POOL_VERSION]].tobytes()

    def _part(self, number: int) -> Part:
        group, pool = self._layout.groups[number], self._tables.pools[number]
        partner = int(pool[POOL_PARTNER])
        of = self._tables.pools[partner - 1] if partner else pool
        return Part(
            group=number,
            name=group.name,
            kind=group.kind.name,
            page_bytes=group.page_bytes,
            abi=self._registrar.abi_digest(number),
            version=int(of[POOL_VERSION]),
        )

    def identity(self, is_block: bool, unit: int) -> ObjectId:
        """Which object a unit is, or would be."""
        row = (self._tables.blocks if is_block else self._tables.images).rows[unit]
        return ObjectId(words_key(int(row[UNIT_KEY_0]), int(row[UNIT_KEY_1])), not is_block)

    def header(self, is_block: bool, unit: int) -> Header:
        """The header of a sealed unit's object."""
        units = self._tables.blocks if is_block else self._tables.images
        row = units.rows[unit]
        parent = bytes(16)
        if is_block:
            parent = words_key(int(row[UNIT_PARENT_KEY_0]), int(row[UNIT_PARENT_KEY_1]))
        first = 0 if is_block else self._num_history
        at = self._tables.pools[first : first + units.pages.shape[1], POOL_FIRST]
        sums = self._tables.pages[at + units.pages[unit], PAGE_CHECKSUM]
        position = int(row[UNIT_POSITION])
        return Header(self.identity(is_block, unit), parent, position, tuple(sums.tolist()))

    def pages(self, is_block: bool, unit: int) -> list[memoryview]:
        """The bytes of a unit's pages where they lie in the pools, in part order."""
        return [
            memoryview(self._words[group][slot]).cast("B")
            for group, slot in self._places(is_block, unit)
        ]

    def targets(self, is_block: bool, units: list[int]) -> "PageTargets":
        """The pages of units, for objects to be read into."""
        first, table = self._table(is_block)
        return PageTargets(self._words[first:], table[units])

    def _places(self, is_block: bool, unit: int) -> list[tuple[int, int]]:
        first, table = self._table(is_block)
        return list(enumerate(table[unit].tolist(), first))

    def _table(self, is_block: bool) -> tuple[int, Arena]:
        """The first group of a kind of unit, and the slots of each unit's pages."""
        if is_block:
            return 0, self._tables.blocks.pages
        return self._num_history, self._tables.images.pages


class PageTargets:
    """Pages of units of one kind where they lie in the pools; see :class:`.tiers.batch.Targets`.

    Args:
        words: bytes of the pools, from that of the first part on.
        slots: int64[n, k], of each unit's pages.
    """

    def __init__(self, words: list[npt.NDArray[np.uint64]], slots: Arena) -> None:
        self._words = words
        self._slots = slots

    def addresses(self) -> Arena:
        """int64[n, k]: where page k of unit n lies in memory."""
        pools = self._words[: self._slots.shape[1]]
        starts = np.array([pool.ctypes.data for pool in pools], dtype=np.int64)
        sizes = np.array([pool.strides[0] for pool in pools], dtype=np.int64)
        found: Arena = starts + self._slots * sizes
        return found

    def pages(self, number: int) -> list[memoryview]:
        """The pages of one unit."""
        slots = self._slots[number].tolist()
        return [memoryview(self._words[part][slot]).cast("B") for part, slot in enumerate(slots)]

    def checksum(self, number: int, part: int) -> int:
        """The checksum of one page as it is now."""
        return int(checksum_pages(self._words[part], self._slots[number : number + 1, part])[0])

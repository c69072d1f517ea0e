"""An engine whose bytes say what they are: each row a hash of the whole prefix it stands for."""

from collections.abc import Sequence as Items

import numpy as np
import numpy.typing as npt

from kvstrata import CacheLayout, CacheManager
from kvstrata.core.groups import GroupSpec, Kind
from kvstrata.core.presets import Row, sized_group
from kvstrata.core.words import PAGE_GENERATION, POOL_FIRST

LAYERS = (0, 1)
_MASK = (1 << 64) - 1
Words = npt.NDArray[np.uint64]


def layout_of(names: Items[str], block_tokens: int, rollback_tokens: int) -> CacheLayout:
    """Two layers of these groups, a window of 4, eight bytes a row."""
    sizes = block_tokens, rollback_tokens
    rows = [Row("stamp", "u8", (8,))]

    def group(name: str) -> GroupSpec:
        if name == "swa":
            return sized_group(name, Kind.SWA, LAYERS, rows, *sizes, window=4)
        kind = Kind.COMPRESSED
        if name.endswith(".index"):
            kind = Kind.INDEXER
        elif name.endswith(".tail"):
            kind = Kind.TAIL
        return sized_group(name, kind, LAYERS, rows, *sizes, ratio=int(name[1:].split(".")[0]))

    return CacheLayout("stamped", tuple(map(group, names)), block_tokens, rollback_tokens, 2)


def hashes_of(model: str, tokens: Items[int]) -> list[int]:
    """A hash of every prefix, the empty one first."""
    found = [int.from_bytes(model.encode()[:8], "little") * 2 + 1]
    for token in tokens:
        mixed = (found[-1] ^ (token + 0x9E37)) * 0xBF58476D1CE4E5B9 & _MASK
        found.append(mixed ^ mixed >> 29)
    return found


class Stamps:
    """Reads and writes the pages of one cache.

    Args:
        cache: a manager with pools over a layout of :func:`layout_of`.
    """

    def __init__(self, cache: CacheManager) -> None:
        assert cache.pools is not None
        self._cache = cache
        self.layout = cache.layout
        self.pools = cache.pools
        self.words: dict[str, Words] = {
            group.name: cache.pools.view(group.name, "stamp").numpy().view("<u8")[..., 0]
            for group in self.layout.groups
        }
        self.salts = {
            group.name: 0x1000_0000_0000 * (number + 1)
            for number, group in enumerate(self.layout.groups)
        }
        self.flipped: dict[tuple[str, int], int] = {}
        """Pages damaged by the test, with their generations."""

    def generation(self, group: str, slot: int) -> int:
        number = self.layout.group_id(group)
        first = int(self._cache.tables.pools[number, POOL_FIRST])
        return int(self._cache.tables.pages[first + slot, PAGE_GENERATION])

    def flip(self, group: str, slot: int, byte: int) -> None:
        """Damage one bit; a second time in the same page repairs nothing."""
        if not self.is_flipped(group, slot):
            page = self.pools.storage(group)[slot]
            page[byte % len(page)] ^= 1
            self.flipped[group, slot] = self.generation(group, slot)

    def is_flipped(self, group: str, slot: int) -> bool:
        return self.flipped.get((group, slot)) == self.generation(group, slot)

    def write_history(self, group: str, slots: Items[int], hashes: list[int], position: int) -> int:
        """Write the entry that the token at a position completes; the slot, or 0 for none."""
        ratio, tokens = self.layout.group(group).ratio, self.layout.block_tokens
        if (position + 1) % ratio:
            return 0
        slot = int(slots[position // tokens])
        entry = position % tokens // ratio
        self.words[group][slot, :, entry] = hashes[position + 1] ^ self.salts[group]
        return slot

    def write_state(self, group: str, slot: int, hashes: list[int], position: int) -> None:
        """Write the row of a token into a ring."""
        rows = self.words[group].shape[2]
        self.words[group][slot, :, position % rows] = hashes[position + 1] ^ self.salts[group]

    def copy(self, group: str, source: int, target: int) -> None:
        self.pools.storage(group)[target] = self.pools.storage(group)[source]

    def wrong_history(
        self, group: str, slots: Items[int], hashes: list[int], position: int
    ) -> list[int]:
        """Block indices whose entries, up to a position, are not those of this prefix."""
        ratio, tokens = self.layout.group(group).ratio, self.layout.block_tokens
        wrong = []
        for index in range(-(-position // tokens)):
            slot = int(slots[index])
            if self.is_flipped(group, slot):
                continue
            count = min(position - index * tokens, tokens) // ratio
            ends = [index * tokens + (entry + 1) * ratio for entry in range(count)]
            expected = np.array([hashes[end] ^ self.salts[group] for end in ends], dtype=np.uint64)
            if not (self.words[group][slot, :, :count] == expected).all():
                wrong.append(index)
        return wrong

    def wrong_state(
        self, group: str, slot: int, hashes: list[int], position: int, origin: int
    ) -> list[int]:
        """Positions whose rows in an image at a position are not those of this prefix."""
        spec, rows = self.layout.group(group), self.words[group].shape[2]
        first = position - position % spec.ratio
        if spec.kind is Kind.SWA:
            first = position - spec.window + 1
        if self.is_flipped(group, slot):
            return []
        return [
            each
            for each in range(max(first, origin, 0), position)
            if not (
                self.words[group][slot, :, each % rows] == hashes[each + 1] ^ self.salts[group]
            ).all()
        ]

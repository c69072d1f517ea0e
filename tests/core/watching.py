"""Looks at what may be spilled, as the core finds it, and what the reference says of it."""

from random import Random

import numpy as np

from kvstrata.core.events import LAST_OF_CALL, PARTIAL, EventType
from kvstrata.core.keys import key_words
from kvstrata.core.spilling import (
    FOUND_WORDS,
    chain_of,
    find_idle_unstored,
    find_sealed,
    is_storable,
)
from kvstrata.core.words import META_LAST_SEQNO, Arena

from ..reference.units import Units
from .pair import Pair

Found = tuple[bool, int, int]
"""Is it a block, the unit, its generation."""


class Watcher:
    """Looks for what was sealed, a few units at a time."""

    def __init__(self, pair: Pair, at_once: int = 64) -> None:
        self.pair = pair
        self.cursor = np.zeros(1, dtype=np.int64)
        self.cursor[0] = self.arena[META_LAST_SEQNO]
        self._found = np.zeros((at_once, FOUND_WORDS), dtype=np.int64)

    @property
    def arena(self) -> Arena:
        return self.pair.subject.arena

    @property
    def ring(self) -> Arena:
        return self.pair.subject.manager._call.ring

    def look(self) -> list[Found]:
        found: list[Found] = []
        while self.cursor[0] < self.arena[META_LAST_SEQNO]:
            count = find_sealed(self.arena, self.ring, self.cursor, self._found)
            assert count >= 0
            found += [(bool(b), unit, g) for b, unit, g in self._found[:count].tolist()]
        return found

    def storable(self) -> set[Found]:
        """Every unit of which that may be said now, with its generation."""
        sides = ((True, self.pair.reference.blocks), (False, self.pair.reference.images))
        return {
            (is_block, number, unit.generation)
            for is_block, units in sides
            for number, unit in units.units.items()
            if is_storable(self.arena, is_block, number, unit.generation)
        }


def sealed_in(pair: Pair, calls: int, *, partial: bool = False) -> list[Found]:
    """The units that the log's calls from one on sealed whole, with the generations of now.

    Or those that were sealed in part, which are blocks.
    """
    found = []
    history = pair.case.sizes.num_history
    for words in pair.log[calls:]:
        for word, last in words[:, [2, 7]].tolist():
            group, flags = word >> 8 & 0xFF, word >> 40 & 0xFF & ~LAST_OF_CALL
            is_seal = word & 0xFF == EventType.PAGE_SEALED and group in (0, history)
            if is_seal and partial == (flags & PARTIAL != 0):
                found.append((group == 0, last & 0xFFFF_FFFF))
    sides = {True: pair.reference.blocks, False: pair.reference.images}
    return [(is_block, unit, sides[is_block][unit].generation) for is_block, unit in found]


def expected_storable(pair: Pair) -> set[Found]:
    """Indexed units at a block's end, a partial block among them; all of now's reader."""
    size = pair.case.block_tokens
    return {
        (is_block, number, units[number].generation)
        for is_block, units in ((True, pair.reference.blocks), (False, pair.reference.images))
        for number in units.index.values()
        if units[number].position % size == 0
    }


def chain_in(units: Units, number: int) -> list[int] | None:
    """The blocks from the root to one, by their parents' keys; None where one is not here."""
    chain = [number]
    while units[chain[0]].parent_key:
        parent = units.index.get(units[chain[0]].parent_key)
        if parent is None:
            return None
        chain.insert(0, parent)
    return chain


def check_chains(pair: Pair) -> int:
    units, arena, whole_ones = pair.reference.blocks, pair.subject.arena, 0
    for number in units.index.values():
        num_blocks, rest = divmod(units[number].position, pair.case.block_tokens)
        rows = np.zeros((num_blocks, 4), dtype=np.int64)
        chain = None if rest else chain_in(units, number)
        assert chain_of(arena, number, rows) == (chain is not None)
        if chain is not None:
            expected = [
                (block, units[block].generation, *key_words(units[block].key)) for block in chain
            ]
            assert rows.tolist() == [list(row) for row in expected]
            whole_ones += 1
    return whole_ones


def check_idle(pair: Pair, rng: Random) -> None:
    """Images first."""
    look, most, tiers = rng.choice((1, 3, 50)), rng.choice((1, 2, 60)), rng.choice((0, 1, 2, 255))
    expected = [
        (is_block, number, units[number].generation)
        for is_block, units in ((False, pair.reference.images), (True, pair.reference.blocks))
        for number in units.idle[:look]
        if not pair.reference.stored.tiers_of(units[number].key, not is_block) & tiers
    ]
    found = np.zeros((most, FOUND_WORDS), dtype=np.int64)
    count = find_idle_unstored(pair.subject.arena, look, tiers, found)
    assert [(bool(b), unit, g) for b, unit, g in found[:count].tolist()] == expected[:most]

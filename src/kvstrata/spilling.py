"""Spills: what is sealed is written to lower tiers, under a lease, on worker threads."""

from collections import Counter, deque
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

import numpy as np

from kvstrata.core.events import Reason
from kvstrata.core.holders import parent_of
from kvstrata.core.index import find_unit
from kvstrata.core.keys import key_words
from kvstrata.core.room import NO_ROOM, STALE
from kvstrata.core.spilling import (
    FOUND_GENERATION,
    FOUND_IS_BLOCK,
    FOUND_UNIT,
    FOUND_WORDS,
    chain_of,
    find_idle_unstored,
    find_sealed,
    is_storable,
)
from kvstrata.core.stored import tiers_of
from kvstrata.core.words import (
    META_FREE_BLOCKS,
    META_FREE_IMAGES,
    META_LAST_SEQNO,
    META_NUM_BLOCKS,
    META_NUM_IMAGES,
    UNIT_GENERATION,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_POSITION,
    UNIT_STATE,
)
from kvstrata.tiers.config import SPILL_LEASES

from .caller import zeros
from .writing import Batch, Unit, Writer

if TYPE_CHECKING:
    from .tiering import Tiering

__all__ = ["Spiller"]

_BATCH_UNITS: Final = 32
"""Objects written under one lease."""
_LOOK_UNITS: Final = 64
"""Of the units next to be evicted, how many are looked at."""
_LOOK_BACK_UNITS: Final = 256
"""Of a backlog, how many are looked at in one call."""
_TRIED: Final = frozenset({Reason.STORE_FAILED, Reason.STORE_TIMEOUT})
_LATER: Final = _TRIED | {Reason.TIER_DOWN, Reason.STORE_FULL}
"""Why a tier did not take an object that it may take when it is well again."""
_TRIES: Final = 3
"""So often is an object tried that a tier does not take, the times apart when it is not asked."""
_LOW_SHARE: Final = 8
"""Units are spilled ahead of their eviction when fewer than one in so many is free."""


class Spiller:
    """The spills of one manager.

    Args:
        tiering: what it is part of.

    Attributes:
        counts: objects so far, by what became of them.
    """

    def __init__(self, tiering: "Tiering") -> None:
        self._tiering = tiering
        self._cursor = zeros(1)
        self._cursor[0] = tiering.arena[META_LAST_SEQNO]
        self._found = zeros(256, FOUND_WORDS)
        self._wanted: deque[Unit] = deque()
        self._late: deque[Unit] = deque(maxlen=tiering.config.max_queued_spills)
        """What some tier could not take; it is spilled again when all tiers are well."""
        self._tries: Counter[Unit] = Counter()
        self._backlog: deque[Unit] = deque()
        """What may have to be spilled and is not known event by event."""
        self._pending: set[tuple[int, int, bool]] = set()
        self._writer = Writer(tiering, self._ended)
        self.counts: Counter[str] = Counter()
        self.look_back()

    @property
    def num_waiting(self) -> int:
        """Units that wait to be spilled, and objects that are not logged as stored yet."""
        # A batch that is written is done when its end is applied.
        writing = sum(max(batch.open, 1) for batch in self._writer.batches.values())
        return len(self._backlog) + len(self._wanted) + len(self._late) + writing

    @property
    def is_held_up(self) -> bool:
        """Whether nothing is being written, and what waits has to wait for a tier."""
        return not self._writer.batches and self._tiering.writable() != self._tiering.all_tiers

    def look(self) -> None:
        """Find what was sealed since the last look, or is about to be evicted; spill it."""
        when = self._tiering.config.spill
        if when != "never":
            self._find_sealed(keep=when == "seal")
        if when == "evict":
            self._find_idle()
        room = self._tiering.config.max_queued_spills - len(self._wanted)
        for _ in range(min(len(self._backlog), room, _LOOK_BACK_UNITS)):
            self._want([self._backlog.popleft()])
        if self._wanted or self._late:
            self._spill()

    def look_back(self) -> None:
        """Look at all that is findable: pages that outlived a manager, or whose reader is back."""
        if self._tiering.config.spill == "seal":
            self._backlog = deque(self._everything())

    def _spill(self) -> None:
        """Hand on what is wanted, as far as there is a tier that takes it."""
        tiering = self._tiering
        tiering.discovery.follow()
        writable = tiering.writable()
        if self._late and writable == tiering.all_tiers:
            self._wanted.extend(self._late)
            self._late.clear()
        # What was down or full is tried with a few objects.
        most = SPILL_LEASES if tiering.is_well() else 1
        while writable and self._wanted and len(self._writer.batches) < most:
            if not self._spill_next():
                break

    def _find_sealed(self, keep: bool) -> None:
        arena, ring = self._tiering.arena, self._tiering.call.ring
        while self._cursor[0] < arena[META_LAST_SEQNO]:
            count = int(find_sealed(arena, ring, self._cursor, self._found))
            if count < 0:
                if keep:
                    self._backlog = deque(self._everything())
                return
            if keep:
                self._want(self._units(count))

    def _find_idle(self) -> None:
        arena = self._tiering.arena
        blocks, images = arena.item(META_NUM_BLOCKS), arena.item(META_NUM_IMAGES)
        few = arena.item(META_FREE_BLOCKS) * _LOW_SHARE < blocks
        few |= arena.item(META_FREE_IMAGES) * _LOW_SHARE < images
        if few and not (self._wanted or self._late):
            tiers = self._tiering.all_tiers
            count = int(find_idle_unstored(arena, _LOOK_UNITS, tiers, self._found))
            self._want(self._units(count))

    def _units(self, count: int) -> list[Unit]:
        rows = self._found[:count].tolist()
        return [(bool(row[FOUND_IS_BLOCK]), row[FOUND_UNIT], row[FOUND_GENERATION]) for row in rows]

    def _everything(self) -> list[Unit]:
        """All that is findable, for want of the events that tell of it; roots first."""
        found: list[Unit] = []
        tables = self._tiering.tables
        for is_block, units in ((True, tables.blocks), (False, tables.images)):
            indexed = np.flatnonzero(units.rows[: len(units.pages), UNIT_STATE] == UNIT_INDEXED)
            indexed = indexed[np.argsort(units.rows[indexed, UNIT_POSITION], kind="stable")]
            generations = units.rows[indexed, UNIT_GENERATION].tolist()
            found += [
                (is_block, unit, generation)
                for unit, generation in zip(indexed.tolist(), generations, strict=True)
            ]
        return found

    def _want(self, units: Iterable[Unit]) -> None:
        for unit in units:
            if self._is_wanted(unit):
                self._wanted.append(unit)
        while len(self._wanted) > self._tiering.config.max_queued_spills:
            self._wanted.popleft()
            self.counts["dropped"] += 1

    def _is_wanted(self, unit: Unit) -> bool:
        """Whether the policy wants a unit stored, and some tier lacks it."""
        is_block, number, _ = unit
        key = self._key(unit)
        if (*key, is_block) in self._pending:
            return False
        if not is_block:
            position = int(self._tiering.tables.images.rows[number, UNIT_POSITION])
            if not self._tiering.policy.keeps(position, True):
                return False
        return self._lacking(is_block, key) != 0

    def _lacking(self, is_block: bool, key: tuple[int, int]) -> int:
        here = int(tiers_of(self._tiering.arena, not is_block, *key))
        return self._tiering.all_tiers & ~here

    def _key(self, unit: Unit) -> tuple[int, int]:
        tables = self._tiering.tables
        row = (tables.blocks if unit[0] else tables.images).rows[unit[1]]
        return int(row[UNIT_KEY_0]), int(row[UNIT_KEY_1])

    def _spill_next(self) -> bool:
        """Lease and hand on the next units of one prefix; False to look again later."""
        arena, tables = self._tiering.arena, self._tiering.tables
        units: list[Unit] = []
        leaf, image = 0, (0, 0)
        while self._wanted and len(units) < _BATCH_UNITS and not image[0]:
            unit = self._wanted[0]
            if not is_storable(arena, *unit) or not self._is_wanted(unit):
                self._wanted.popleft()
                continue
            if unit[0]:
                if leaf and int(parent_of(arena, unit[1])) != leaf:
                    break
                leaf = unit[1]
            else:
                block = int(find_unit(arena, True, *self._key(unit)))
                if not block:
                    self._wanted.popleft()  # what it stands on is gone: nobody could use it
                    continue
                if leaf and block != leaf:
                    break
                leaf, image = block, unit[1:]
            units.append(self._wanted.popleft())
        if not units:
            return bool(self._wanted)
        if self._tiering.is_books_only:
            headers = [self._tiering.objects.header(*one[:2]) for one in units]
            self._tiering.stored.add([(one.identity, one.position, 1) for one in headers])
            return True
        position = int(tables.blocks.rows[leaf, UNIT_POSITION])
        chain = zeros(position // self._tiering.layout.block_tokens, 4)
        if not chain_of(arena, leaf, chain):
            self.counts["unreachable"] += len(units)
            return True
        row = self._writer.lease(chain, image)
        if row == NO_ROOM:
            self._wanted.extendleft(reversed(units))
            return False
        if row != STALE:
            self._tiering.used(chain[:, 2:], False)
            keys = [self._key(unit) for unit in units]
            self._pending.update((*key, unit[0]) for key, unit in zip(keys, units, strict=True))
            lacking = [self._lacking(unit[0], key) for key, unit in zip(keys, units, strict=True)]
            self._writer.write(row, units, lacking)
        return True

    def _ended(self, batch: Batch) -> None:
        """Count what became of a batch; what a tier could not take now is tried again."""
        for unit, header, result in zip(batch.units, batch.headers, batch.results, strict=True):
            first, second = key_words(header.identity.key)
            self._pending.discard((first, second, not header.identity.is_checkpoint))
            if result is None:
                self.counts["failed"] += 1
                continue
            if result.tiers:
                self.counts["written" if result.written else "already_there"] += 1
            for _, fault in result.faults:
                self.counts[f"fault_{fault.reason.name.lower()}"] += 1
            self._put_off(unit, {fault.reason for _, fault in result.faults})

    def _put_off(self, unit: Unit, reasons: set[Reason]) -> None:
        """Spill a unit again later, where a tier did not take it now and may then."""
        if reasons & _TRIED:
            self._tries[unit] += 1
        if reasons & _LATER and self._tries[unit] < _TRIES:
            self._late.append(unit)
        else:
            del self._tries[unit]

    def close(self) -> None:
        """The workers have stopped: release every lease that is left."""
        self._writer.close()

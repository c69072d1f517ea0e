"""The same events applied by a plain Python loop: dictionaries, lists, and no checks.

It keeps what a cache must know after a restart: every page's state, the lists of free pages, the
index by key, who holds what, and the units in the order in which they would be evicted. It checks
neither a CRC nor a precondition. After a run it is compared with kvstrata's own tables.
"""

import struct
from collections import OrderedDict, deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from kvstrata import CacheLayout
from kvstrata.core.arena import Tables, Units
from kvstrata.core.events import PAGE_EVENTS_END, WITH_CHECKPOINT, WITH_PARTIAL, EventType
from kvstrata.core.words import (
    PAGE_GENERATION,
    PAGE_NEXT,
    PAGE_SEQNO,
    PAGE_STATE,
    POOL_FIRST,
    POOL_SLOTS,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_NEXT,
    UNIT_STATE,
)

_EVENT = struct.Struct("<QQBBBBBBHIIqqqq")
_MASK = 0xFFFF_FFFF


@dataclass(slots=True)
class Unit:
    """A block or an image."""

    owner: int
    pages: int = 0
    sealed: int = 0
    refs: int = 1
    resumes: int = 0
    indexed: bool = False
    key: Any = None
    parent: Any = None
    canonical: int = 0


class Side:
    """All blocks, or all images."""

    def __init__(self, groups: int) -> None:
        self.groups = groups
        self.units: dict[int, Unit] = {}
        self.index: dict[tuple[int, int], int] = {}
        self.idle: OrderedDict[int, None] = OrderedDict()

    def pin(self, number: int) -> Unit:
        unit = self.units[number]
        if unit.refs == 0:
            del self.idle[number]
        unit.refs += 1
        return unit

    def release(self, number: int) -> None:
        unit = self.units[number]
        unit.refs -= 1
        if unit.refs == 0 and unit.indexed:
            self.idle[number] = None

    def withdraw(self, number: int, unit: Unit) -> None:
        if unit.indexed:
            unit.indexed = False
            del self.index[unit.key]
            self.idle.pop(number, None)


@dataclass(slots=True)
class Holder:
    """A running sequence."""

    blocks: list[int] = field(default_factory=list)
    checkpoint: int = 0
    partial: int = 0
    origin: tuple[int, Unit] | None = None


class PlainLoop:
    """The state, and how each event changes it."""

    def __init__(self, layout: CacheLayout, slots: dict[str, int]) -> None:
        self._history = len(layout.history_groups)
        self.blocks = Side(self._history)
        self.images = Side(len(layout.groups) - self._history)
        self._holders: dict[int, Holder] = {}
        self.pages: list[dict[int, tuple[int, int, int]]] = [{} for _ in layout.groups]
        self.free = [deque(range(1, slots[group.name])) for group in layout.groups]

    def apply(self, data: bytes) -> int:
        """Apply stored events, 64 bytes each; returns how many."""
        pages, free, history, others = self.pages, self.free, self._history, _OTHERS
        reserved, sealed, freed = _PAGES
        for event in _EVENT.iter_unpack(data):
            seqno, _, kind, group, state, _, _, flags, _, page, generation, a, b, c, d = event
            if kind >= PAGE_EVENTS_END:
                change = others.get(kind)
                if change is not None:
                    change(self, flags, a, b, c, d)
                continue
            side = self.blocks if group < history else self.images
            pages[group][page] = state, generation, seqno
            if kind == sealed:
                self._seal(side, (a, b), d & _MASK, (d >> 32) & _MASK)
            elif kind == reserved:
                free[group].popleft()
                self._reserve(side, b & _MASK, c & _MASK)
            elif kind == freed:
                free[group].append(page)
                self._free(side, b & _MASK)
        return len(data) // 64

    def _reserve(self, side: Side, number: int, row: int) -> None:
        unit = side.units.get(number)
        if unit is None:
            unit = side.units[number] = Unit(row)
            if side is self.blocks:
                self._holders[row].blocks.append(number)
        unit.pages += 1

    def _free(self, side: Side, number: int) -> None:
        unit = side.units[number]
        side.withdraw(number, unit)
        unit.pages -= 1
        if unit.pages == 0:
            if unit.key is None and side is self.blocks:
                self._holders[unit.owner].blocks.pop()
            del side.units[number]

    def _seal(self, side: Side, key: tuple[int, int], number: int, parent: int) -> None:
        unit = side.units[number]
        unit.sealed += 1
        if unit.sealed < side.groups:
            return
        unit.key = key
        found = side.index.setdefault(key, number)
        unit.indexed = found == number
        if side is self.blocks:
            unit.parent = side.units[parent].key if parent else None
            if found != number:
                unit.canonical = found
                side.pin(found)
            return
        side.release(number)
        origin = self._holders[unit.owner].origin
        if origin is not None:
            before, image = origin
            is_here = side.units.get(before) is image and image.indexed
            if is_here and image.refs == 0 and image.resumes == 1:
                side.idle.move_to_end(before, last=False)

    def _begin(self, flags: int, a: int, b: int, c: int, d: int) -> None:
        self._holders[b & _MASK] = Holder()

    def _grant(self, flags: int, a: int, b: int, c: int, d: int) -> None:
        holder = self._holders[d & 0xFFFF]
        blocks, key = self.blocks, (a, b)
        if flags & WITH_PARTIAL:
            holder.partial = blocks.index[key]
            key = blocks.pin(holder.partial).parent
        if flags & WITH_CHECKPOINT:
            holder.checkpoint = self.images.index[a, b]
            image = self.images.pin(holder.checkpoint)
            image.resumes += 1
            holder.origin = holder.checkpoint, image
        for _ in range((d >> 32) & _MASK):
            number = blocks.index[key]
            holder.blocks.append(number)
            key = blocks.pin(number).parent
        holder.blocks.reverse()

    def _copied(self, flags: int, a: int, b: int, c: int, d: int) -> None:
        self._release_copied(self._holders[b & _MASK])

    def _release_copied(self, holder: Holder) -> None:
        if holder.checkpoint:
            self.images.release(holder.checkpoint)
        if holder.partial:
            self.blocks.release(holder.partial)
        holder.checkpoint = holder.partial = 0

    def _finish(self, flags: int, a: int, b: int, c: int, d: int) -> None:
        holder = self._holders.pop(b & _MASK)
        for number in reversed(holder.blocks):
            canonical = self.blocks.units[number].canonical
            self.blocks.release(number)
            if canonical:
                self.blocks.release(canonical)
        self._release_copied(holder)

    def check(self, tables: Tables) -> None:
        """Fail where kvstrata's tables after the same events say otherwise."""
        for number, pool in enumerate(tables.pools):
            rows = tables.pages[pool[POOL_FIRST] : pool[POOL_FIRST] + pool[POOL_SLOTS]]
            known = rows[:, [PAGE_STATE, PAGE_GENERATION, PAGE_SEQNO]].tolist()
            for slot, (state, generation, seqno) in self.pages[number].items():
                assert known[slot] == [state, generation, seqno], f"group {number}, page {slot}"
            assert list(self.free[number]) == _listed(rows, 0, PAGE_NEXT), f"free of {number}"
        for side, units in ((self.blocks, tables.blocks), (self.images, tables.images)):
            _check_side(side, units)


def _check_side(side: Side, units: Units) -> None:
    last = len(units.pages)
    indexed = np.flatnonzero(units.rows[:last, UNIT_STATE] == UNIT_INDEXED)
    keys = units.rows[indexed][:, [UNIT_KEY_0, UNIT_KEY_1]].tolist()
    found = {tuple(key): int(unit) for key, unit in zip(keys, indexed, strict=True)}
    assert side.index == found, "the index"
    assert list(side.idle) == _listed(units.rows, last, UNIT_NEXT), "the order of eviction"


def _listed(rows: Any, sentinel: int, following: int) -> list[int]:
    links = rows[:, following].tolist()
    members, at = [], links[sentinel]
    while at != sentinel:
        members.append(at)
        at = links[at]
    return members


_PAGES = (
    int(EventType.PAGE_RESERVED),
    int(EventType.PAGE_SEALED),
    int(EventType.PAGE_FREED),
)
_OTHERS: dict[int, Any] = {
    int(EventType.SEQUENCE_BEGUN): PlainLoop._begin,
    int(EventType.SEQUENCE_FINISHED): PlainLoop._finish,
    int(EventType.LEASE_GRANTED): PlainLoop._grant,
    int(EventType.CHECKPOINT_RELEASED): PlainLoop._copied,
}

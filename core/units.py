"""Pinning, releasing and withdrawing units; used by apply alone.

An indexed unit without references is in the idle list (order of last release); an unindexed one
without references is in limbo until the call that put it there has freed its pages.
"""

from .compile import compiled, helper
from .index import find_unit, index_unit, unindex_unit
from .lists import IDLE_LIST, LIMBO_LIST, append_unit, unlink_unit
from .views import (
    unit_rows,
)
from .words import (
    META_INDEXED_BLOCKS,
    META_INDEXED_IMAGES,
    META_LAST_SEQNO,
    META_NUM_BLOCKS,
    META_NUM_IMAGES,
    UNIT_CANONICAL,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_LAST_USE,
    UNIT_PARENT_KEY_0,
    UNIT_PARENT_KEY_1,
    UNIT_REFS,
    UNIT_STATE,
    UNIT_UNINDEXED,
    Arena,
)

__all__ = ["add_to_index", "drop_from_index", "pin", "release", "withdraw_orphans"]


@helper
def pin(arena: Arena, is_block: bool, unit: int) -> None:
    """Add a reference to a unit."""
    rows = unit_rows(arena, is_block)
    if rows[unit, UNIT_REFS] == 0:
        unlink_unit(arena, is_block, IDLE_LIST, unit)
    rows[unit, UNIT_REFS] += 1


@helper
def release(arena: Arena, is_block: bool, unit: int) -> None:
    """Drop a reference; the last one sends the unit to the idle list or to limbo."""
    rows = unit_rows(arena, is_block)
    rows[unit, UNIT_REFS] -= 1
    if rows[unit, UNIT_REFS] == 0:
        rows[unit, UNIT_LAST_USE] = arena[META_LAST_SEQNO] + 1
        indexed = rows[unit, UNIT_STATE] == UNIT_INDEXED
        append_unit(arena, is_block, IDLE_LIST if indexed else LIMBO_LIST, unit)


@helper
def add_to_index(arena: Arena, is_block: bool, unit: int) -> None:
    """Make a completed unit findable under its key."""
    unit_rows(arena, is_block)[unit, UNIT_STATE] = UNIT_INDEXED
    index_unit(arena, is_block, unit)
    arena[META_INDEXED_BLOCKS if is_block else META_INDEXED_IMAGES] += 1


@helper
def drop_from_index(arena: Arena, is_block: bool, unit: int) -> None:
    """Make a unit unfindable, where it was findable."""
    rows = unit_rows(arena, is_block)
    if rows[unit, UNIT_STATE] != UNIT_INDEXED:
        return
    unindex_unit(arena, is_block, unit)
    rows[unit, UNIT_STATE] = UNIT_UNINDEXED
    arena[META_INDEXED_BLOCKS if is_block else META_INDEXED_IMAGES] -= 1
    if rows[unit, UNIT_REFS] == 0:
        unlink_unit(arena, is_block, IDLE_LIST, unit)
        append_unit(arena, is_block, LIMBO_LIST, unit)


_REACHABLE, _ORPHAN = 1, 2
"""Marks of indexed blocks while orphans are looked for, in a word that only unindexed ones use."""


@compiled
def withdraw_orphans(arena: Arena) -> None:
    """Make unfindable what cannot be reached: it may have been computed on a block found bad.

    It would be reached again once that block is computed anew. Orphans are the indexed blocks of
    which some block below is not indexed; and checkpoints under whose key no block is. Every block
    is looked at once.
    """
    rows = unit_rows(arena, True)
    for block in range(1, arena[META_NUM_BLOCKS] + 1):
        if rows[block, UNIT_STATE] == UNIT_INDEXED:
            _mark(arena, block)
    for block in range(1, arena[META_NUM_BLOCKS] + 1):
        if rows[block, UNIT_STATE] == UNIT_INDEXED:
            orphan = rows[block, UNIT_CANONICAL] == _ORPHAN
            rows[block, UNIT_CANONICAL] = 0
            if orphan:
                drop_from_index(arena, True, block)
    images = unit_rows(arena, False)
    for image in range(1, arena[META_NUM_IMAGES] + 1):
        if images[image, UNIT_STATE] == UNIT_INDEXED:
            key_0, key_1 = images[image, UNIT_KEY_0], images[image, UNIT_KEY_1]
            if find_unit(arena, True, key_0, key_1) == 0:
                drop_from_index(arena, False, image)


@helper
def _mark(arena: Arena, block: int) -> None:
    """Mark a block, and all on the way from it down to the root, as reachable or orphans."""
    rows = unit_rows(arena, True)
    at = block
    mark = 0
    for _ in range(arena[META_NUM_BLOCKS] + 1):
        mark = rows[at, UNIT_CANONICAL]
        if mark != 0:
            break
        key_0, key_1 = rows[at, UNIT_PARENT_KEY_0], rows[at, UNIT_PARENT_KEY_1]
        if key_0 == 0 and key_1 == 0:
            mark = _REACHABLE
            break
        at = find_unit(arena, True, key_0, key_1)
        if at == 0:
            mark = _ORPHAN
            break
    mark = mark if mark != 0 else _ORPHAN  # links that go in a circle
    at = block
    while at != 0 and rows[at, UNIT_CANONICAL] == 0:
        rows[at, UNIT_CANONICAL] = mark
        key_0, key_1 = rows[at, UNIT_PARENT_KEY_0], rows[at, UNIT_PARENT_KEY_1]
        at = 0 if key_0 == 0 and key_1 == 0 else find_unit(arena, True, key_0, key_1)

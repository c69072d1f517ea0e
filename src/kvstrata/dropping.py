"""Dropping a prefix: all that hangs from a key is evicted, as far as nobody uses it."""

from collections.abc import Generator
from typing import Final, NamedTuple

import numpy as np

from kvstrata.core.arena import open_tables
from kvstrata.core.compile import compiled
from kvstrata.core.events import EventType, Reason
from kvstrata.core.index import find_unit
from kvstrata.core.ring import publish
from kvstrata.core.room import (
    DONE,
    REFUSED,
    RING_FULL,
    emit_for_unit,
    last_seqno_of_call,
    quarter_is_free,
)
from kvstrata.core.views import unit_rows
from kvstrata.core.words import (
    META_LAST_SEQNO,
    META_NUM_BLOCKS,
    META_NUM_IMAGES,
    UNIT_GENERATION,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_PARENT_KEY_0,
    UNIT_PARENT_KEY_1,
    UNIT_POSITION,
    UNIT_REFS,
    UNIT_STATE,
    Arena,
)

from .caller import CoreCaller, zeros

__all__ = ["Below", "Dropped", "drop", "drop_units", "find_below", "mark_below"]

_PAGE_FREED: Final = int(EventType.PAGE_FREED)
_OPERATOR: Final = int(Reason.OPERATOR)
_BELOW, _ELSEWHERE = 1, 2


@compiled
def mark_below(arena: Arena, key_0: int, key_1: int, blocks: Arena, images: Arena) -> int:
    """Mark the indexed blocks and checkpoints of a prefix and of all that go on from it.

    Args:
        arena: the tables; read only.
        key_0: first word of the prefix's key.
        key_1: second word.
        blocks: int64[1 + blocks], zeros; 1 for those below the key, 2 for the others.
        images: int64[1 + images], likewise.

    Returns:
        The block under the key, 0 for none.
    """
    rows = unit_rows(arena, True)
    target = find_unit(arena, True, key_0, key_1)
    for block in range(1, arena[META_NUM_BLOCKS] + 1):
        if rows[block, UNIT_STATE] != UNIT_INDEXED:
            continue
        at, mark = block, 0
        for _ in range(arena[META_NUM_BLOCKS] + 1):
            if blocks[at] != 0:
                mark = blocks[at]
                break
            if at == target:
                mark = _BELOW
                break
            first, second = rows[at, UNIT_PARENT_KEY_0], rows[at, UNIT_PARENT_KEY_1]
            at = 0 if first == 0 and second == 0 else find_unit(arena, True, first, second)
            if at == 0:
                break
        mark = mark if mark != 0 else _ELSEWHERE
        at = block
        while at != 0 and blocks[at] == 0:
            blocks[at] = mark
            first, second = rows[at, UNIT_PARENT_KEY_0], rows[at, UNIT_PARENT_KEY_1]
            stays = at == target or (first == 0 and second == 0)
            at = 0 if stays else find_unit(arena, True, first, second)
    checkpoints = unit_rows(arena, False)
    for image in range(1, arena[META_NUM_IMAGES] + 1):
        if checkpoints[image, UNIT_STATE] == UNIT_INDEXED:
            first, second = checkpoints[image, UNIT_KEY_0], checkpoints[image, UNIT_KEY_1]
            block = find_unit(arena, True, first, second)
            images[image] = blocks[block] if block != 0 else _ELSEWHERE
    return target


@compiled
def drop_units(arena: Arena, ring: Arena, is_block: bool, units: Arena, now_ns: int) -> int:
    """Evict units that are indexed and that nobody holds; others are passed over.

    Args:
        arena: the arena.
        ring: the ring.
        is_block: blocks, or images.
        units: int64[n, 2], their numbers and generations, in the order in which they go.
        now_ns: the call's time.

    Returns:
        How many of ``units`` were looked at, RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    last = last_seqno_of_call(arena, ring)
    rows = unit_rows(arena, is_block)
    looked = 0
    for index in range(units.shape[0]):
        if arena[META_LAST_SEQNO] >= last:
            break
        unit = units[index, 0]
        looked += 1
        if rows[unit, UNIT_GENERATION] != units[index, 1]:
            continue  # of another prefix by now
        if rows[unit, UNIT_STATE] != UNIT_INDEXED or rows[unit, UNIT_REFS] != 0:
            continue
        code = emit_for_unit(arena, ring, now_ns, _PAGE_FREED, is_block, unit, _OPERATOR)
        if code != DONE:
            return REFUSED
    publish(arena, ring)
    return looked


class Below(NamedTuple):
    """What a prefix is and what hangs from it.

    Attributes:
        block: the block under its key, 0 for none.
        blocks: int64[n], it and the blocks that go on from it, the last ones first.
        images: int64[n], checkpoints under their keys.
    """

    block: int
    blocks: Arena
    images: Arena


class Dropped(NamedTuple):
    """What was dropped, and what is kept since somebody uses it."""

    blocks: int
    images: int
    kept_blocks: int
    kept_images: int


def find_below(arena: Arena, key: tuple[int, int]) -> Below:
    """What hangs from a key; changes nothing."""
    tables = open_tables(arena)
    num_blocks, num_images = int(arena[META_NUM_BLOCKS]), int(arena[META_NUM_IMAGES])
    block_marks, image_marks = zeros(num_blocks + 1), zeros(num_images + 1)
    target = mark_below(arena, *key, block_marks, image_marks)
    if not target:
        return Below(0, zeros(0), zeros(0))
    blocks = np.flatnonzero(block_marks == _BELOW)
    last_first = np.argsort(-tables.blocks.rows[blocks, UNIT_POSITION], kind="stable")
    return Below(int(target), blocks[last_first], np.flatnonzero(image_marks == _BELOW))


def drop(call: CoreCaller, below: Below) -> Generator[None, None, Dropped]:
    """Evict what :func:`find_below` found, checkpoints first, then the ends of prefixes.

    What somebody reads or pins stays, with all that it hangs from. A part is done between one
    yield and the next; the engine may go on meanwhile.
    """
    tables = open_tables(call.arena)
    wanted, kept = [], []
    for is_block, units in ((False, below.images), (True, below.blocks)):
        rows = tables.blocks.rows if is_block else tables.images.rows
        idle = units[rows[units, UNIT_REFS] == 0]
        kept.append(len(units) - len(idle))
        wanted.append((is_block, np.stack([idle, rows[idle, UNIT_GENERATION]], axis=1)))
    for is_block, left in wanted:
        while len(left):
            left = left[call.run(drop_units, call.arena, call.ring, is_block, left) :]
            yield
    (_, images), (_, blocks) = wanted
    return Dropped(len(blocks), len(images), kept[1], kept[0])

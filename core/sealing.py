"""Sealing as apply sees it: pages completed, units made findable, checkpoints superseded."""

from typing import Final

from .compile import helper
from .events import PARTIAL
from .index import find_unit
from .lists import IDLE_LIST, prepend_unit, unlink_unit
from .refusals import KEY_DIFFERS, NOT_OWNED, OK, OUT_OF_ORDER, TAINTED
from .units import add_to_index, pin, release
from .views import holder_table, page_table, pool_table, unit_pages, unit_rows
from .words import (
    HOLDER_IMAGES,
    HOLDER_NUM_IMAGES,
    HOLDER_ORIGIN,
    HOLDER_ORIGIN_GENERATION,
    HOLDER_SEALED,
    HOLDER_TAINTED,
    MAX_IMAGES,
    META_BLOCK_TOKENS,
    META_NUM_HISTORY,
    PAGE_CHECKSUM,
    PAGE_ENTRIES,
    PAGE_HEAD,
    PAGE_STAMP,
    PAGE_UNIT,
    POOL_ABI,
    POOL_ENTRIES,
    POOL_FIRST,
    POOL_OVERLAP,
    POOL_PARTNER,
    POOL_RATIO,
    POOL_ROWS,
    POOL_VERSION,
    POOL_WINDOW,
    STAMP_OVERLAP,
    UNIT_BUILDING,
    UNIT_CANONICAL,
    UNIT_GENERATION,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_OWNER,
    UNIT_PARENT,
    UNIT_PARENT_KEY_0,
    UNIT_PARENT_KEY_1,
    UNIT_POSITION,
    UNIT_REFS,
    UNIT_RESUMES,
    UNIT_SEALED,
    UNIT_STATE,
    UNIT_UNINDEXED,
    Arena,
)

__all__ = ["forget_image", "seal_page", "stamp_now", "state_entries"]

_MASK_32: Final = 0xFFFF_FFFF


@helper
def seal_page(arena: Arena, group: int, slot: int, event: Arena) -> int:
    """Complete one page; the last one of its unit makes the unit findable by its key."""
    is_block = group < arena[META_NUM_HISTORY]
    holders = holder_table(arena)
    rows = unit_rows(arena, is_block)
    pool = pool_table(arena)[group]
    page = page_table(arena)[pool[POOL_FIRST] + slot]
    unit = page[PAGE_UNIT]
    if unit != event[7] & _MASK_32:
        return NOT_OWNED
    this = rows[unit]
    if this[UNIT_STATE] != UNIT_BUILDING:
        return NOT_OWNED
    row = this[UNIT_OWNER]
    extra = (event[7] >> 32) & _MASK_32
    if this[UNIT_SEALED] == 0:
        this[UNIT_KEY_0] = event[4]
        this[UNIT_KEY_1] = event[5]
        if not is_block:
            if holders[row, HOLDER_TAINTED] != 0:
                return TAINTED
            this[UNIT_POSITION] = extra
    elif this[UNIT_KEY_0] != event[4] or this[UNIT_KEY_1] != event[5]:
        return KEY_DIFFERS
    page[PAGE_CHECKSUM] = event[6]
    page[PAGE_STAMP] = stamp_now(arena, group, this[UNIT_POSITION])
    if not is_block:
        page[PAGE_ENTRIES] = state_entries(pool, this[UNIT_POSITION])
        page[PAGE_HEAD] = this[UNIT_POSITION] % pool[POOL_ROWS]
    elif (event[2] >> 40) & PARTIAL == 0:
        page[PAGE_ENTRIES] = pool[POOL_ENTRIES]
    this[UNIT_SEALED] += 1
    if this[UNIT_SEALED] < unit_pages(arena, is_block).shape[1]:
        return OK
    if is_block:
        sealed = holders[row, HOLDER_SEALED] + 1
        if this[UNIT_POSITION] != sealed * arena[META_BLOCK_TOKENS]:
            return OUT_OF_ORDER
        holders[row, HOLDER_SEALED] = sealed
        this[UNIT_PARENT] = extra
        this[UNIT_PARENT_KEY_0] = rows[extra, UNIT_KEY_0] if extra != 0 else 0
        this[UNIT_PARENT_KEY_1] = rows[extra, UNIT_KEY_1] if extra != 0 else 0
        _publish_block(arena, row, unit)
    else:
        this[UNIT_OWNER] = 0
        forget_image(arena, row, unit)
        _publish_image(arena, row, unit)
    return OK


@helper
def stamp_now(arena: Arena, group: int, position: int) -> int:
    """What a page of a group sealed now is stamped with: its ABI, its mapping's version."""
    pool = pool_table(arena)[group]
    partner = pool[POOL_PARTNER]
    version = pool[POOL_VERSION]
    if partner != 0:
        version = pool_table(arena)[partner - 1, POOL_VERSION]
    stamp = pool[POOL_ABI] << 32 | version
    if pool[POOL_OVERLAP] != 0 and position >= pool[POOL_RATIO]:
        stamp |= STAMP_OVERLAP
    return stamp


@helper
def _publish_block(arena: Arena, row: int, block: int) -> None:
    """Index a completed block, or leave it unindexed: its key is indexed, or it is not to be had.

    A tainted sequence stands on a page that failed validation: nobody may find what it computes.
    """
    this = unit_rows(arena, True)[block]
    found = 0
    tainted = holder_table(arena)[row, HOLDER_TAINTED] != 0
    if not tainted:
        found = find_unit(arena, True, this[UNIT_KEY_0], this[UNIT_KEY_1])
        if found == 0:
            add_to_index(arena, True, block)
            return
    this[UNIT_STATE] = UNIT_UNINDEXED
    if found != 0:
        this[UNIT_CANONICAL] = found
        pin(arena, True, found)


@helper
def _publish_image(arena: Arena, row: int, image: int) -> None:
    """Index a completed checkpoint; the one its sequence began on may be superseded by it."""
    rows = unit_rows(arena, False)
    this = rows[image]
    if find_unit(arena, False, this[UNIT_KEY_0], this[UNIT_KEY_1]) == 0:
        add_to_index(arena, False, image)
    else:
        this[UNIT_STATE] = UNIT_UNINDEXED
    release(arena, False, image)
    holder = holder_table(arena)[row]
    origin = holder[HOLDER_ORIGIN]
    if (
        origin != 0
        and rows[origin, UNIT_STATE] == UNIT_INDEXED
        and rows[origin, UNIT_GENERATION] == holder[HOLDER_ORIGIN_GENERATION]
        and rows[origin, UNIT_REFS] == 0
        and rows[origin, UNIT_RESUMES] == 1
    ):
        unlink_unit(arena, False, IDLE_LIST, origin)
        prepend_unit(arena, False, IDLE_LIST, origin)


@helper
def state_entries(pool: Arena, position: int) -> int:
    """Rows of a state page that count at a position: the window, or the open compression rows."""
    if pool[POOL_WINDOW] > 0:
        return min(position, pool[POOL_WINDOW] - 1)
    return position % pool[POOL_RATIO]


@helper
def forget_image(arena: Arena, row: int, image: int) -> None:
    """Take an image from its sequence's list of private ones, keeping the others' order."""
    holder = holder_table(arena)[row]
    kept = 0
    for place in range(holder[HOLDER_NUM_IMAGES]):
        other = holder[HOLDER_IMAGES + place]
        if other != image:
            holder[HOLDER_IMAGES + kept] = other
            kept += 1
    for place in range(kept, MAX_IMAGES):
        holder[HOLDER_IMAGES + place] = 0
    holder[HOLDER_NUM_IMAGES] = kept

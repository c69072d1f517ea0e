"""What may be written to a lower tier: sealed units, found in the log as they are sealed."""

from typing import Final

from .compile import compiled, helper
from .emit import emit_note
from .events import EVENT_WORDS, PARTIAL, EventType
from .holders import parent_of
from .lists import IDLE_LIST, sentinel_of
from .ring import RING_CAPACITY, RING_HEADER_WORDS, publish
from .room import DONE, REFUSED, RING_FULL, quarter_is_free
from .sealing import stamp_now
from .states import PageState
from .stored import tiers_of
from .views import page_table, pool_table, unit_pages, unit_rows
from .words import (
    META_BLOCK_TOKENS,
    META_LAST_SEQNO,
    META_NUM_HISTORY,
    PAGE_ENTRIES,
    PAGE_STAMP,
    PAGE_STATE,
    POOL_ENTRIES,
    POOL_FIRST,
    STAMP_DIRTY,
    UNIT_GENERATION,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_NEXT,
    UNIT_POSITION,
    UNIT_STATE,
    Arena,
)

__all__ = ["chain_of", "find_idle_unstored", "find_sealed", "is_storable", "note_objects"]

FOUND_IS_BLOCK, FOUND_UNIT, FOUND_GENERATION = range(3)
FOUND_WORDS: Final = 3

_PAGE_SEALED: Final = int(EventType.PAGE_SEALED)
_SEALED: Final = int(PageState.SEALED)


@helper
def _tell(arena: Arena, found: Arena, count: int, is_block: bool, unit: int) -> None:
    found[count, FOUND_IS_BLOCK] = 1 if is_block else 0
    found[count, FOUND_UNIT] = unit
    found[count, FOUND_GENERATION] = unit_rows(arena, is_block)[unit, UNIT_GENERATION]


@compiled
def find_sealed(arena: Arena, ring: Arena, cursor: Arena, found: Arena) -> int:
    """The units that events since the last look sealed.

    Args:
        arena: the arena.
        ring: the ring.
        cursor: int64[1], seqno of the last event looked at.
        found: int64[n, FOUND_WORDS], filled: is it a block, the unit, its generation.

    Returns:
        Units found; as many as ``found`` has rows where there are more; -1 where events were
        overwritten before they were looked at.

    Mutates:
        cursor, found.
    """
    capacity = ring[RING_CAPACITY]
    head = arena[META_LAST_SEQNO]
    if head - cursor[0] > capacity:
        cursor[0] = head
        return -1
    history = arena[META_NUM_HISTORY]
    count = 0
    while cursor[0] < head and count < found.shape[0]:
        place = RING_HEADER_WORDS + (cursor[0] & (capacity - 1)) * EVENT_WORDS
        head_word = ring[place + 2]
        cursor[0] += 1
        if head_word & 0xFF != _PAGE_SEALED or (head_word >> 40) & PARTIAL != 0:
            continue
        group = (head_word >> 8) & 0xFF
        if group == 0 and history > 0:
            _tell(arena, found, count, True, ring[place + 7] & 0xFFFF_FFFF)
            count += 1
        elif group == history:
            _tell(arena, found, count, False, ring[place + 7] & 0xFFFF_FFFF)
            count += 1
    return count


@compiled
def find_idle_unstored(arena: Arena, look: int, tiers: int, found: Arena) -> int:
    """The units next to be evicted that no tier holds, of the first ``look`` of either idle list.

    Returns:
        Units found, at most the rows of ``found``.

    Mutates:
        found.
    """
    count = 0
    for is_block in (False, True):
        rows = unit_rows(arena, is_block)
        idle = sentinel_of(arena, is_block, IDLE_LIST)
        unit = rows[idle, UNIT_NEXT]
        for _ in range(look):
            if unit == idle or count == found.shape[0]:
                break
            key_0, key_1 = rows[unit, UNIT_KEY_0], rows[unit, UNIT_KEY_1]
            if tiers_of(arena, not is_block, key_0, key_1) & tiers == 0:
                _tell(arena, found, count, is_block, unit)
                count += 1
            unit = rows[unit, UNIT_NEXT]
    return count


@compiled
def is_storable(arena: Arena, is_block: bool, unit: int, generation: int) -> bool:
    """Whether a unit is whole, findable, at a block's end, and as the readers of now want it."""
    row = unit_rows(arena, is_block)[unit]
    if row[UNIT_STATE] != UNIT_INDEXED or row[UNIT_GENERATION] != generation:
        return False
    if row[UNIT_POSITION] % arena[META_BLOCK_TOKENS] != 0:
        return False
    parts = unit_pages(arena, is_block)
    first = 0 if is_block else arena[META_NUM_HISTORY]
    for part in range(parts.shape[1]):
        pool = pool_table(arena)[first + part]
        page = page_table(arena)[pool[POOL_FIRST] + parts[unit, part]]
        if page[PAGE_STATE] != _SEALED or page[PAGE_STAMP] & STAMP_DIRTY != 0:
            return False
        if page[PAGE_STAMP] != stamp_now(arena, first + part, row[UNIT_POSITION]):
            return False
        if is_block and page[PAGE_ENTRIES] != pool[POOL_ENTRIES]:
            return False
    return True


@compiled
def chain_of(arena: Arena, block: int, rows: Arena) -> bool:
    """The blocks from the root to an indexed block; False where one of them is not here.

    Args:
        arena: the arena.
        block: the last of them.
        rows: int64[n, 4], filled: ids, generations and keys, as a plan has them.

    Mutates:
        rows.
    """
    units = unit_rows(arena, True)
    for index in range(rows.shape[0] - 1, -1, -1):
        if block == 0 or units[block, UNIT_STATE] != UNIT_INDEXED:
            return False
        if units[block, UNIT_POSITION] != (index + 1) * arena[META_BLOCK_TOKENS]:
            return False
        rows[index, 0] = block
        rows[index, 1] = units[block, UNIT_GENERATION]
        rows[index, 2] = units[block, UNIT_KEY_0]
        rows[index, 3] = units[block, UNIT_KEY_1]
        if index > 0:
            block = parent_of(arena, block)
    return True


@compiled
def note_objects(arena: Arena, ring: Arena, kind: int, objects: Arena, now_ns: int) -> int:
    """Log what became of stored objects, one event each, all of one call.

    Args:
        arena: the arena.
        ring: the ring.
        kind: OBJECT_STORED or OBJECT_REMOVED.
        objects: int64[n, 6]: key (2 words), bytes, position | tiers << 32 | checkpoint << 48,
            tier that changed, reason. At most a quarter of the ring.
        now_ns: the call's time.

    Returns:
        DONE, RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    code = DONE
    for index in range(objects.shape[0]):
        this = objects[index]
        reason_flags = this[5]
        head = kind | this[4] << 24
        code |= emit_note(
            arena, ring, now_ns, head, 0, reason_flags, this[0], this[1], this[2], this[3]
        )
    if code != DONE:
        return REFUSED
    publish(arena, ring)
    return DONE

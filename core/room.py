"""Taking units from the pools, giving them back, and making room: the pieces calls are made of.

A call emits at most a quarter of the ring and starts only where a quarter is free; what is larger
is cut at block boundaries into several calls (:data:`MORE`), each whole.
"""

from typing import Final

from .compile import helper
from .emit import emit_page
from .events import EventType, Reason
from .lists import FREE_LIST, IDLE_LIST, LIMBO_LIST, sentinel_of
from .ring import RING_CAPACITY, RING_DRAINED, RING_FLAG_UNLOGGED, RING_FLAGS
from .states import PageState
from .views import (
    holder_table,
    page_table,
    pool_table,
    unit_pages,
    unit_rows,
)
from .words import (
    HOLDER_ID,
    META_FREE_BLOCKS,
    META_FREE_IMAGES,
    META_IDLE_BLOCKS,
    META_IDLE_IMAGES,
    META_LAST_SEQNO,
    META_NUM_HISTORY,
    PAGE_NEXT,
    PAGE_STATE,
    POOL_FIRST,
    UNIT_CANONICAL,
    UNIT_NEXT,
    UNIT_OWNER,
    UNIT_POSITION,
    Arena,
)

__all__ = ["DONE", "MORE", "NO_ROOM", "REFUSED", "RING_FULL", "STALE"]

DONE: Final = 0
MORE: Final = -1
"""The call did a part of its work, whole; call again."""
RING_FULL: Final = -2
"""Nothing was changed; wait for the writer and call again."""
NO_ROOM: Final = -3
STALE: Final = -4
REFUSED: Final = -5
"""apply refused an event: a bug. META_REFUSAL holds why."""

_PAGE_RESERVED: Final = int(EventType.PAGE_RESERVED)
_PAGE_WRITING: Final = int(EventType.PAGE_WRITING)
_PAGE_DRAINING: Final = int(EventType.PAGE_DRAINING)
_PAGE_FREED: Final = int(EventType.PAGE_FREED)
_DRAINING: Final = int(PageState.DRAINING)
_EVICTED: Final = int(Reason.EVICTED)
_DUPLICATE: Final = int(Reason.DUPLICATE)
_UNREFERENCED: Final = int(Reason.UNREFERENCED)


@helper
def quarter_is_free(ring: Arena, head: int) -> bool:
    """Whether a quarter of the ring can be written, counting what this call wrote already."""
    if ring[RING_FLAGS] & RING_FLAG_UNLOGGED:
        return True
    capacity = ring[RING_CAPACITY]
    return capacity - (head - ring[RING_DRAINED]) >= capacity >> 2


@helper
def last_seqno_of_call(arena: Arena, ring: Arena) -> int:
    """The seqno at which a call that starts now must stop taking up more work."""
    margin = 8 * (pool_table(arena).shape[0] + 1)
    return arena[META_LAST_SEQNO] + (ring[RING_CAPACITY] >> 2) - margin


@helper
def first_group(arena: Arena, is_block: bool) -> int:
    """Group of the first page of a unit."""
    return 0 if is_block else arena[META_NUM_HISTORY]


@helper
def emit_for_unit(
    arena: Arena, ring: Arena, now_ns: int, kind: int, is_block: bool, unit: int, reason: int
) -> int:
    """One event for each page of a unit, in group order."""
    rows = unit_rows(arena, is_block)
    parts = unit_pages(arena, is_block)
    first = first_group(arena, is_block)
    owner = holder_table(arena)[rows[unit, UNIT_OWNER], HOLDER_ID]
    b = unit | rows[unit, UNIT_POSITION] << 32
    code = DONE
    for part in range(parts.shape[1]):
        slot = parts[unit, part]
        if slot != 0:
            code |= emit_page(arena, ring, now_ns, kind, first + part, slot, reason, owner, b, 0, 0)
    return code


@helper
def make_room(arena: Arena, ring: Arena, now_ns: int, is_block: bool, num_units: int) -> int:
    """Evict the least recently released units until ``num_units`` ids are free.

    The caller has checked that free and idle units suffice.
    """
    idle = sentinel_of(arena, is_block, IDLE_LIST)
    code = DONE
    while arena[META_FREE_BLOCKS if is_block else META_FREE_IMAGES] < num_units:
        victim = unit_rows(arena, is_block)[idle, UNIT_NEXT]
        code |= emit_for_unit(arena, ring, now_ns, _PAGE_FREED, is_block, victim, _EVICTED)
        if code != DONE:
            return code
    return code


@helper
def available(arena: Arena, is_block: bool) -> int:
    """Units that could be taken now: free ones, and idle ones that eviction would free."""
    if is_block:
        return arena[META_FREE_BLOCKS] + arena[META_IDLE_BLOCKS]
    return arena[META_FREE_IMAGES] + arena[META_IDLE_IMAGES]


@helper
def reserve_unit(
    arena: Arena, ring: Arena, now_ns: int, is_block: bool, row: int, index: int, role: int
) -> int:
    """Reserve the next free unit for a sequence; negative is a refusal.

    Args:
        arena: the arena.
        ring: the ring.
        now_ns: the call's time.
        is_block: a block, or an image.
        row: the sequence's row.
        index: the block's place in its sequence, or the position of the image.
        role: a :class:`.apply.Role`.

    Returns:
        The unit's id, or a negative refusal.
    """
    unit = unit_rows(arena, is_block)[sentinel_of(arena, is_block, FREE_LIST), UNIT_NEXT]
    first = first_group(arena, is_block)
    owner = holder_table(arena)[row, HOLDER_ID]
    code = DONE
    for part in range(unit_pages(arena, is_block).shape[1]):
        group = first + part
        slot = page_table(arena)[pool_table(arena)[group, POOL_FIRST], PAGE_NEXT]
        b = unit | index << 32
        c = row | role << 32
        code |= emit_page(arena, ring, now_ns, _PAGE_RESERVED, group, slot, 0, owner, b, c, 0)
    return unit if code == DONE else code


@helper
def give_up(arena: Arena, ring: Arena, now_ns: int, is_block: bool, unit: int, reason: int) -> int:
    """Free a unit that was not sealed and that no step touches: DRAINING, then FREE."""
    rows = unit_rows(arena, is_block)
    parts = unit_pages(arena, is_block)
    first = first_group(arena, is_block)
    owner = holder_table(arena)[rows[unit, UNIT_OWNER], HOLDER_ID]
    b = unit | rows[unit, UNIT_POSITION] << 32
    code = DONE
    for part in range(parts.shape[1]):
        slot = parts[unit, part]
        if slot == 0:
            continue
        group = first + part
        if page_table(arena)[pool_table(arena)[group, POOL_FIRST] + slot, PAGE_STATE] != _DRAINING:
            code |= emit_page(
                arena, ring, now_ns, _PAGE_DRAINING, group, slot, reason, owner, b, 0, 0
            )
        code |= emit_page(arena, ring, now_ns, _PAGE_FREED, group, slot, reason, owner, b, 0, 0)
    return code


@helper
def empty_limbo(arena: Arena, ring: Arena, now_ns: int, last_seqno: int) -> int:
    """Free the units that are neither indexed nor referenced; MORE where the call is full."""
    for is_block in (True, False):
        rows = unit_rows(arena, is_block)
        limbo = sentinel_of(arena, is_block, LIMBO_LIST)
        while rows[limbo, UNIT_NEXT] != limbo:
            if arena[META_LAST_SEQNO] >= last_seqno:
                return MORE
            unit = rows[limbo, UNIT_NEXT]
            reason = _DUPLICATE if rows[unit, UNIT_CANONICAL] != 0 else _UNREFERENCED
            if emit_for_unit(arena, ring, now_ns, _PAGE_FREED, is_block, unit, reason) != DONE:
                return REFUSED
    return DONE


@helper
def unit_is_in(arena: Arena, is_block: bool, unit: int, state: int) -> bool:
    """Whether the first page of a unit is in a state (its pages move together)."""
    first = first_group(arena, is_block)
    slot = unit_pages(arena, is_block)[unit, 0]
    return page_table(arena)[pool_table(arena)[first, POOL_FIRST] + slot, PAGE_STATE] == state

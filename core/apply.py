"""apply: the one function state × event → state, live and in replay.

Nothing else changes a table, free list, idle list, index, lease, sequence or checkpoint. Each
case begins with its preconditions; one that does not hold refuses the event with a code of
:mod:`.refusals`. Live, a refusal is a bug; in replay it means the log is not this arena's.
"""

from enum import IntEnum
from typing import Final

from .compile import helper
from .events import PAGE_EVENTS_END, EventType
from .holders import (
    begin_sequence,
    cancel_sequence,
    finish_sequence,
    fork_sequence,
    grant_lease,
    release_checkpoint,
    release_lease,
    taint_holders,
)
from .index import find_unit
from .lists import FREE_LIST, LIMBO_LIST, append_page, append_unit, unlink_page, unlink_unit
from .refusals import (
    ALREADY_PRESENT,
    ILLEGAL_TRANSITION,
    NO_SUCH_GROUP,
    NO_SUCH_HOLDER,
    NO_SUCH_PAGE,
    NO_SUCH_UNIT,
    NOT_OWNED,
    OK,
    OUT_OF_ORDER,
    SEQUENCE_GAP,
    STATE_DIFFERS,
    STILL_PINNED,
    WRONG_GENERATION,
)
from .registry import begin_incarnation, observe_rates, register
from .sealing import forget_image, seal_page
from .states import ILLEGAL, NEXT_STATE, PageState
from .stored import set_stored
from .units import drop_from_index, withdraw_orphans
from .views import (
    holder_blocks,
    holder_table,
    page_table,
    pool_table,
    unit_pages,
    unit_rows,
)
from .words import (
    HOLDER_BLOCKS,
    HOLDER_ID,
    HOLDER_IMAGES,
    HOLDER_KIND,
    HOLDER_NUM_IMAGES,
    HOLDER_SEQUENCE,
    MAX_IMAGES,
    META_BLOCK_TOKENS,
    META_COUNTS,
    META_LAST_SEQNO,
    META_LAST_TIME_NS,
    META_MAX_BLOCKS,
    META_NUM_GROUPS,
    META_NUM_HISTORY,
    PAGE_ENTRIES,
    PAGE_GENERATION,
    PAGE_HEAD,
    PAGE_SEQNO,
    PAGE_STAMP,
    PAGE_STATE,
    PAGE_UNIT,
    PAGE_WORDS,
    POOL_COUNTS,
    POOL_FIRST,
    POOL_SLOTS,
    STAMP_DIRTY,
    UNIT_BUILDING,
    UNIT_FREE,
    UNIT_GENERATION,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_OWNER,
    UNIT_PAGES,
    UNIT_POSITION,
    UNIT_REFS,
    UNIT_STATE,
    UNIT_WORDS,
    Arena,
)

__all__ = ["Role", "apply"]

_MASK_32: Final = 0xFFFF_FFFF


class Role(IntEnum):
    """What a reserved state image is for."""

    HISTORY = 0
    PRIVATE = 1
    CHECKPOINT = 2


_ROLE_PRIVATE: Final = int(Role.PRIVATE)
_FREE: Final = int(PageState.FREE)
_PAGE_RESERVED: Final = int(EventType.PAGE_RESERVED)
_PAGE_OPENED: Final = int(EventType.PAGE_OPENED)
_PAGE_SEALED: Final = int(EventType.PAGE_SEALED)
_PAGE_DRAINING: Final = int(EventType.PAGE_DRAINING)
_PAGE_QUARANTINED: Final = int(EventType.PAGE_QUARANTINED)
_PAGE_DIRTIED: Final = int(EventType.PAGE_DIRTIED)
_SEQUENCE_BEGUN: Final = int(EventType.SEQUENCE_BEGUN)
_SEQUENCE_FINISHED: Final = int(EventType.SEQUENCE_FINISHED)
_SEQUENCE_CANCELLED: Final = int(EventType.SEQUENCE_CANCELLED)
_SEQUENCE_SUSPENDED: Final = int(EventType.SEQUENCE_SUSPENDED)
_SEQUENCE_FORKED: Final = int(EventType.SEQUENCE_FORKED)
_LEASE_GRANTED: Final = int(EventType.LEASE_GRANTED)
_LEASE_RELEASED: Final = int(EventType.LEASE_RELEASED)
_CHECKPOINT_RELEASED: Final = int(EventType.CHECKPOINT_RELEASED)
_MANAGER_OPENED: Final = int(EventType.MANAGER_OPENED)
_ABI_REGISTERED: Final = int(EventType.ABI_REGISTERED)
_MAPPING_REGISTERED: Final = int(EventType.MAPPING_REGISTERED)
_RATES_OBSERVED: Final = int(EventType.RATES_OBSERVED)
_OBJECT_STORED: Final = int(EventType.OBJECT_STORED)
_OBJECT_REMOVED: Final = int(EventType.OBJECT_REMOVED)


@helper
def apply(arena: Arena, event: Arena) -> int:
    """Apply one event.

    Args:
        arena: the arena.
        event: int64[8], the event's words.

    Returns:
        0, or the negative code of a refusal; a refused event may leave its own page's
        tables half changed, so whoever is refused stops mutating.
    """
    meta = arena
    if event[0] != meta[META_LAST_SEQNO] + 1:
        return SEQUENCE_GAP
    kind = event[2] & 0xFF
    if kind < PAGE_EVENTS_END:
        code = _apply_to_page(arena, kind, event)
    elif kind == _SEQUENCE_BEGUN:
        code = begin_sequence(arena, event)
    elif kind in (_SEQUENCE_FINISHED, _SEQUENCE_SUSPENDED):
        code = finish_sequence(arena, event)
    elif kind == _SEQUENCE_CANCELLED:
        code = cancel_sequence(arena, event)
    elif kind == _LEASE_GRANTED:
        code = grant_lease(arena, event)
    elif kind == _LEASE_RELEASED:
        code = release_lease(arena, event)
    elif kind == _CHECKPOINT_RELEASED:
        code = release_checkpoint(arena, event)
    elif kind == _SEQUENCE_FORKED:
        code = fork_sequence(arena, event)
    elif kind == _MANAGER_OPENED:
        code = begin_incarnation(arena, event)
    elif _ABI_REGISTERED <= kind <= _MAPPING_REGISTERED:
        code = register(arena, kind, event)
    elif kind == _RATES_OBSERVED:
        code = observe_rates(arena, event)
    elif kind in (_OBJECT_STORED, _OBJECT_REMOVED):
        code = set_stored(arena, event)
    else:
        code = OK  # a note: it changes only the counters
    if code == OK:
        meta[META_LAST_SEQNO] = event[0]
        meta[META_LAST_TIME_NS] = event[1]
        meta[META_COUNTS + (kind & 63)] += 1
    return code


@helper
def _apply_to_page(arena: Arena, kind: int, event: Arena) -> int:
    group = (event[2] >> 8) & 0xFF
    slot = event[3] & _MASK_32
    generation = (event[3] >> 32) & _MASK_32
    if group >= arena[META_NUM_GROUPS]:
        return NO_SUCH_GROUP
    pool = pool_table(arena)[group]
    if slot == 0 or slot >= pool[POOL_SLOTS]:
        return NO_SUCH_PAGE
    page = page_table(arena)[pool[POOL_FIRST] + slot]
    state = page[PAGE_STATE]
    after = NEXT_STATE[state, kind]
    if after == ILLEGAL:
        return ILLEGAL_TRANSITION
    if (event[2] >> 16) & 0xFF != after:
        return STATE_DIFFERS
    if kind == _PAGE_RESERVED:
        if generation != (page[PAGE_GENERATION] + 1) & _MASK_32:
            return WRONG_GENERATION
        code = _reserve(arena, group, slot, event)
        if code != OK:
            return code
        page[PAGE_GENERATION] = generation
    else:
        if generation != page[PAGE_GENERATION]:
            return WRONG_GENERATION
        code = OK
        if kind == _PAGE_SEALED:
            code = seal_page(arena, group, slot, event)
        elif kind == _PAGE_OPENED:
            page[PAGE_ENTRIES] = event[6]
            page[PAGE_HEAD] = event[7]
        elif kind in (_PAGE_QUARANTINED, _PAGE_DRAINING):
            _withdraw(arena, group, slot, kind)
        elif kind == _PAGE_DIRTIED:
            page[PAGE_STAMP] |= STAMP_DIRTY
        elif after == _FREE:
            code = _free(arena, group, slot, kind)
        if code != OK:
            return code
    pool[POOL_COUNTS + state] -= 1
    pool[POOL_COUNTS + after] += 1
    page[PAGE_STATE] = after
    page[PAGE_SEQNO] = event[0]
    return OK


@helper
def _reserve(arena: Arena, group: int, slot: int, event: Arena) -> int:
    """Give a free page to a unit of a sequence; the first page takes the unit too."""
    is_block = group < arena[META_NUM_HISTORY]
    holders = holder_table(arena)
    parts = unit_pages(arena, is_block)
    pages = page_table(arena)
    part = group if is_block else group - arena[META_NUM_HISTORY]
    unit = event[5] & _MASK_32
    index = (event[5] >> 32) & _MASK_32
    row = event[6] & _MASK_32
    if unit == 0 or unit > parts.shape[0] - 1 or row == 0 or row >= holders.shape[0]:
        return NO_SUCH_UNIT
    holder = holders[row]
    if holder[HOLDER_KIND] != HOLDER_SEQUENCE or holder[HOLDER_ID] != event[4]:
        return NO_SUCH_HOLDER
    this = unit_rows(arena, is_block)[unit]
    if this[UNIT_STATE] == UNIT_FREE:
        if is_block:
            if index != holder[HOLDER_BLOCKS] or index >= arena[META_MAX_BLOCKS]:
                return OUT_OF_ORDER
            holder_blocks(arena)[row, index] = unit
            holder[HOLDER_BLOCKS] = index + 1
        elif (event[6] >> 32) == _ROLE_PRIVATE:
            if holder[HOLDER_NUM_IMAGES] >= MAX_IMAGES:
                return OUT_OF_ORDER
            holder[HOLDER_IMAGES + holder[HOLDER_NUM_IMAGES]] = unit
            holder[HOLDER_NUM_IMAGES] += 1
        unlink_unit(arena, is_block, FREE_LIST, unit)
        this[UNIT_STATE] = UNIT_BUILDING
        this[UNIT_GENERATION] += 1
        this[UNIT_OWNER] = row
        this[UNIT_REFS] = 1
        this[UNIT_POSITION] = (index + 1) * arena[META_BLOCK_TOKENS] if is_block else index
    elif this[UNIT_STATE] != UNIT_BUILDING or this[UNIT_OWNER] != row:
        return NOT_OWNED
    if parts[unit, part] != 0:
        return ALREADY_PRESENT
    parts[unit, part] = slot
    this[UNIT_PAGES] += 1
    first = pool_table(arena)[group, POOL_FIRST]
    unlink_page(arena, first, slot)
    pages[first + slot, PAGE_UNIT] = unit
    return OK


@helper
def _withdraw(arena: Arena, group: int, slot: int, kind: int) -> None:
    """A page is no longer good: its unit becomes unfindable at once.

    One that failed validation taints the sequences that stand on it.
    """
    is_block = group < arena[META_NUM_HISTORY]
    unit = page_table(arena)[pool_table(arena)[group, POOL_FIRST] + slot, PAGE_UNIT]
    drop_from_index(arena, is_block, unit)
    if kind == _PAGE_QUARANTINED:
        taint_holders(arena, is_block, unit)
        if is_block:
            _withdraw_twin(arena, unit)
            withdraw_orphans(arena)


@helper
def _withdraw_twin(arena: Arena, block: int) -> None:
    """Where a bad block is a duplicate, what hangs from its key may have been computed on it.

    So the block indexed under the key is withdrawn too, and who holds it may be a fork of who read
    the bad one.
    """
    row = unit_rows(arena, True)[block]
    twin = find_unit(arena, True, row[UNIT_KEY_0], row[UNIT_KEY_1])
    if twin != 0:
        drop_from_index(arena, True, twin)
        taint_holders(arena, True, twin)


@helper
def _free(arena: Arena, group: int, slot: int, kind: int) -> int:
    """Return a page to its own pool; the last page of a unit frees the unit."""
    is_block = group < arena[META_NUM_HISTORY]
    holders = holder_table(arena)
    parts = unit_pages(arena, is_block)
    pages = page_table(arena)
    part = group if is_block else group - arena[META_NUM_HISTORY]
    first = pool_table(arena)[group, POOL_FIRST]
    page = pages[first + slot]
    unit = page[PAGE_UNIT]
    this = unit_rows(arena, is_block)[unit]
    if this[UNIT_STATE] != UNIT_BUILDING and this[UNIT_REFS] != 0:
        return STILL_PINNED
    if parts[unit, part] != slot:
        return NOT_OWNED
    drop_from_index(arena, is_block, unit)
    parts[unit, part] = 0
    this[UNIT_PAGES] -= 1
    generation = page[PAGE_GENERATION]
    for word in range(PAGE_WORDS):
        page[word] = 0
    page[PAGE_GENERATION] = generation
    append_page(arena, first, slot)
    if this[UNIT_PAGES] > 0:
        return OK
    if this[UNIT_STATE] == UNIT_BUILDING:
        row = this[UNIT_OWNER]
        if is_block:
            last = holders[row, HOLDER_BLOCKS] - 1
            if last < 0 or holder_blocks(arena)[row, last] != unit:
                return OUT_OF_ORDER
            holder_blocks(arena)[row, last] = 0
            holders[row, HOLDER_BLOCKS] = last
        else:
            forget_image(arena, row, unit)
    else:
        unlink_unit(arena, is_block, LIMBO_LIST, unit)
    unit_generation = this[UNIT_GENERATION]
    for word in range(UNIT_WORDS):
        this[word] = 0
    this[UNIT_GENERATION] = unit_generation
    append_unit(arena, is_block, FREE_LIST, unit)
    return OK

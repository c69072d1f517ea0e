"""Writing one event into the ring and applying it: the only way live code changes state."""

from typing import Final

from .apply import apply
from .compile import compiled, helper
from .events import EVENT_WORDS, PAGE_EVENTS_END, EventType
from .ring import RING_CAPACITY, RING_HEADER_WORDS
from .states import NEXT_STATE
from .views import (
    holder_blocks,
    holder_table,
    page_table,
    pool_table,
    unit_rows,
    words_at,
)
from .words import (
    HOLDER_BLOCKS,
    META_LAST_SEQNO,
    META_NUM_HISTORY,
    META_REFUSAL,
    PAGE_GENERATION,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_FIRST,
    UNIT_REFS,
    Arena,
)

__all__ = ["emit_note", "emit_page", "references_after"]

_RESERVED: Final = int(EventType.PAGE_RESERVED)
_LEASE_GRANTED: Final = int(EventType.LEASE_GRANTED)
_MASK_32: Final = 0xFFFF_FFFF


@helper
def references_after(arena: Arena, event: Arena) -> int:
    """References of what an applied event is about: its page's unit, or a lease's last block."""
    blocks = unit_rows(arena, True)
    kind = event[2] & 0xFF
    if kind < PAGE_EVENTS_END:
        group = (event[2] >> 8) & 0xFF
        unit = page_table(arena)[
            pool_table(arena)[group, POOL_FIRST] + (event[3] & _MASK_32), PAGE_UNIT
        ]
        if group < arena[META_NUM_HISTORY]:
            return blocks[unit, UNIT_REFS]
        return unit_rows(arena, False)[unit, UNIT_REFS]
    if kind == _LEASE_GRANTED:
        row = event[7] & 0xFFFF
        num_blocks = holder_table(arena)[row, HOLDER_BLOCKS]
        if num_blocks > 0:
            return blocks[holder_blocks(arena)[row, num_blocks - 1], UNIT_REFS]
    return 0


@compiled
def _emit(
    arena: Arena,
    ring: Arena,
    now_ns: int,
    kind: int,
    page: int,
    a: int,
    b: int,
    c: int,
    d: int,
) -> int:
    """Write the next event into the ring, apply it there, and add the references after it."""
    place = arena[META_LAST_SEQNO] & (ring[RING_CAPACITY] - 1)
    start = RING_HEADER_WORDS + place * EVENT_WORDS
    event = words_at(ring, start, EVENT_WORDS)
    event[0] = arena[META_LAST_SEQNO] + 1
    event[1] = now_ns
    event[2] = kind
    event[3] = page
    event[4] = a
    event[5] = b
    event[6] = c
    event[7] = d
    code = apply(arena, event)
    if code == 0:
        event[2] |= references_after(arena, event) << 48
    else:
        arena[META_REFUSAL] = code
    return code


@helper
def emit_page(
    arena: Arena,
    ring: Arena,
    now_ns: int,
    kind: int,
    group: int,
    slot: int,
    reason_flags: int,
    a: int,
    b: int,
    c: int,
    d: int,
) -> int:
    """Emit one page event; its generation and state after are read off the tables.

    Args:
        arena: the arena.
        ring: the ring; room was checked before.
        now_ns: the call's time.
        kind: a page event type.
        group: group of the page.
        slot: slot of the page.
        reason_flags: reason | flags << 8.
        a: first payload word.
        b: second payload word.
        c: third payload word.
        d: fourth payload word.

    Returns:
        0, or apply's refusal.
    """
    pages = page_table(arena)
    page = pool_table(arena)[group, POOL_FIRST] + slot
    generation = pages[page, PAGE_GENERATION]
    if kind == _RESERVED:
        generation += 1
    after = NEXT_STATE[pages[page, PAGE_STATE], kind]
    head = kind | group << 8 | (after & 0xFF) << 16 | reason_flags << 32
    return _emit(arena, ring, now_ns, head, slot | (generation & _MASK_32) << 32, a, b, c, d)


@helper
def emit_note(
    arena: Arena,
    ring: Arena,
    now_ns: int,
    kind: int,
    subject: int,
    reason_flags: int,
    a: int,
    b: int,
    c: int,
    d: int,
) -> int:
    """Emit an event that is about no single page; ``subject`` fills group and page words.

    Args:
        arena: the arena.
        ring: the ring; room was checked before.
        now_ns: the call's time.
        kind: the event type.
        subject: group << 32 | page of what the note is about, or 0.
        reason_flags: reason | flags << 8.
        a: first payload word.
        b: second payload word.
        c: third payload word.
        d: fourth payload word.

    Returns:
        0, or apply's refusal.
    """
    head = kind | ((subject >> 32) & 0xFF) << 8 | reason_flags << 32
    return _emit(arena, ring, now_ns, head, subject & _MASK_32, a, b, c, d)

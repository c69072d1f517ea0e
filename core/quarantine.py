"""quarantine: a sealed page that failed validation becomes unfindable at once. And plain notes."""

from typing import Final

from .compile import compiled
from .emit import emit_note, emit_page
from .events import EventType
from .ring import publish
from .room import (
    DONE,
    REFUSED,
    RING_FULL,
    STALE,
    empty_limbo,
    last_seqno_of_call,
    quarter_is_free,
)
from .states import PageState
from .views import (
    page_table,
    pool_table,
    unit_rows,
)
from .words import (
    META_LAST_SEQNO,
    META_NUM_GROUPS,
    META_NUM_HISTORY,
    PAGE_GENERATION,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_FIRST,
    POOL_SLOTS,
    UNIT_POSITION,
    Arena,
)

__all__ = ["mark_dirty", "note", "quarantine"]

_PAGE_QUARANTINED: Final = int(EventType.PAGE_QUARANTINED)
_VALIDATION_FAILED: Final = int(EventType.VALIDATION_FAILED)
_PAGE_DIRTIED: Final = int(EventType.PAGE_DIRTIED)
_SEALED: Final = int(PageState.SEALED)


@compiled
def quarantine(
    arena: Arena,
    ring: Arena,
    group: int,
    slot: int,
    generation: int,
    verdict: Arena,
    now_ns: int,
) -> int:
    """Withdraw a sealed page that failed validation.

    Args:
        arena: the arena.
        ring: the ring.
        group: the page's group.
        slot: its slot.
        generation: its generation when it was validated.
        verdict: int64[4]: reason, layer, expected, found.
        now_ns: the call's time.

    Returns:
        DONE, MORE (see :func:`.finish.drain_limbo`), RING_FULL, STALE (not that page, or not
        sealed: nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    pools = pool_table(arena)
    if group < 0 or group >= arena[META_NUM_GROUPS]:
        return STALE
    if slot <= 0 or slot >= pools[group, POOL_SLOTS]:
        return STALE
    page = page_table(arena)[pools[group, POOL_FIRST] + slot]
    if page[PAGE_STATE] != _SEALED or page[PAGE_GENERATION] != generation:
        return STALE
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    unit = page[PAGE_UNIT]
    is_block = group < arena[META_NUM_HISTORY]
    position = unit_rows(arena, is_block)[unit, UNIT_POSITION]
    reason, expected, found = verdict[0], verdict[2], verdict[3]
    subject = group << 32 | slot
    code = emit_note(
        arena,
        ring,
        now_ns,
        _VALIDATION_FAILED,
        subject,
        reason,
        expected,
        found,
        unit | verdict[1] << 32,
        position,
    )
    b = unit | position << 32
    code |= emit_page(
        arena, ring, now_ns, _PAGE_QUARANTINED, group, slot, reason, 0, b, expected, found
    )
    if code != DONE:
        return REFUSED
    code = empty_limbo(arena, ring, now_ns, last_seqno_of_call(arena, ring))
    publish(arena, ring)
    return code


@compiled
def note(
    arena: Arena,
    ring: Arena,
    kind: int,
    group: int,
    page: int,
    reason: int,
    payload: Arena,
    now_ns: int,
) -> int:
    """Log an event that moves no page: about a group, one of its pages, or none.

    Args:
        arena: the arena.
        ring: the ring.
        kind: an event type from 32 on.
        group: the group, or 0.
        page: a slot of its pool, or 0.
        reason: a :class:`.events.Reason`.
        payload: int64[4].
        now_ns: the call's time.

    Returns:
        DONE, RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    subject = group << 32 | page
    code = emit_note(
        arena, ring, now_ns, kind, subject, reason, payload[0], payload[1], payload[2], payload[3]
    )
    if code != DONE:
        return REFUSED
    publish(arena, ring)
    return DONE


@compiled
def mark_dirty(
    arena: Arena, ring: Arena, group: int, slot: int, generation: int, now_ns: int
) -> int:
    """Say that a sealed page was written again: no hit may adopt it any more.

    Returns:
        DONE, RING_FULL, STALE (not that page, or not sealed: nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    page = page_table(arena)[pool_table(arena)[group, POOL_FIRST] + slot]
    if page[PAGE_STATE] != _SEALED or page[PAGE_GENERATION] != generation:
        return STALE
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    unit = page[PAGE_UNIT]
    is_block = group < arena[META_NUM_HISTORY]
    b = unit | unit_rows(arena, is_block)[unit, UNIT_POSITION] << 32
    if emit_page(arena, ring, now_ns, _PAGE_DIRTIED, group, slot, 0, 0, b, 0, 0) != DONE:
        return REFUSED
    publish(arena, ring)
    return DONE

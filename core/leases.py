"""lease: pin a planned prefix outside any sequence, check it again, release it."""

from typing import Final

from .ask import ASK_NUM_BLOCKS, ASK_OWNER, plan_is_fresh
from .begin import emit_grant
from .compile import compiled
from .emit import emit_note
from .events import EventType
from .ring import publish
from .room import (
    DONE,
    NO_ROOM,
    REFUSED,
    RING_FULL,
    STALE,
    empty_limbo,
    last_seqno_of_call,
    quarter_is_free,
)
from .views import (
    holder_blocks,
    holder_table,
)
from .words import (
    HOLDER_ID,
    HOLDER_KIND,
    HOLDER_LEASE,
    META_FREE_LEASE,
    META_LAST_SEQNO,
    META_NUM_SEQUENCES,
    Arena,
)

__all__ = ["grant", "lease_is_whole", "release_grant"]

_LEASE_RELEASED: Final = int(EventType.LEASE_RELEASED)


@compiled
def grant(arena: Arena, ring: Arena, plan: Arena, ask: Arena, now_ns: int) -> int:
    """Lease a planned prefix outside any sequence.

    Returns:
        RING_FULL, STALE, NO_ROOM (nothing changed), REFUSED, or the lease's row.

    Mutates:
        arena, ring.
    """
    if not plan_is_fresh(arena, plan, ask):
        return STALE
    row = arena[META_FREE_LEASE]
    if row == 0:
        return NO_ROOM
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    if emit_grant(arena, ring, now_ns, row, ask[ASK_OWNER], ask) != DONE:
        return REFUSED
    publish(arena, ring)
    return row


@compiled
def lease_is_whole(arena: Arena, row: int, plan: Arena, ask: Arena) -> bool:
    """Whether what a lease pins is still what was leased, and findable. Changes nothing.

    Args:
        arena: the arena.
        row: the lease's row.
        plan: int64[n, 4], block ids, generations and keys when it was granted.
        ask: int64[ASK_WORDS], as granted.
    """
    for index in range(ask[ASK_NUM_BLOCKS]):
        if holder_blocks(arena)[row, index] != plan[index, 0]:
            return False
    return plan_is_fresh(arena, plan, ask)


@compiled
def release_grant(arena: Arena, ring: Arena, row: int, identity: int, now_ns: int) -> int:
    """End a lease; MORE while there is more to free.

    Returns:
        DONE, MORE, RING_FULL, STALE (no such lease: nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    holders = holder_table(arena)
    live = row > arena[META_NUM_SEQUENCES] and row < holders.shape[0]
    if not live or holders[row, HOLDER_KIND] != HOLDER_LEASE:
        return STALE
    if holders[row, HOLDER_ID] != identity:
        return STALE
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    last = last_seqno_of_call(arena, ring)
    if emit_note(arena, ring, now_ns, _LEASE_RELEASED, 0, 0, identity, row, 0, 0) != DONE:
        return REFUSED
    code = empty_limbo(arena, ring, now_ns, last)
    publish(arena, ring)
    return code

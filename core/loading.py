"""Loads: pages that a lower tier fills. RESERVED → LOADING → SEALED, whole blocks from the root on.

A load owns its pages as a sequence does, so what is true of a sequence's pages is true of these:
all are taken at once or none, a crash frees them, and what is sealed is released at its end. What
it seals is what was stored, under the same key, with the checksum that its bytes have.
"""

from typing import Final

from .apply import Role
from .ask import (
    ASK_NUM_BLOCKS,
    ASK_SEED_0,
    ASK_SEED_1,
    idle_blocks_of,
    plan_is_fresh,
)
from .begin import emit_grant
from .commit import parent_to_name, seal_unit
from .compile import compiled
from .emit import emit_note
from .events import FOR_LOAD, EventType
from .ring import publish
from .room import (
    DONE,
    MORE,
    NO_ROOM,
    REFUSED,
    RING_FULL,
    STALE,
    available,
    emit_for_unit,
    empty_limbo,
    give_up,
    last_seqno_of_call,
    make_room,
    quarter_is_free,
    reserve_unit,
    unit_is_in,
)
from .states import PageState
from .steps import WORK_KEY_0, WORK_KEY_1, WORK_SUMS
from .views import holder_blocks, holder_table
from .words import (
    HOLDER_BLOCKS,
    HOLDER_SEALED,
    HOLDER_TAINTED,
    META_FREE_SEQUENCE,
    META_LAST_SEQNO,
    META_MAX_BLOCKS,
    META_NEXT_HOLDER,
    Arena,
)

__all__ = ["begin_load", "drain_load", "end_load", "take_load"]

# a load, as these functions read and keep it
(
    LOAD_BLOCKS,
    LOAD_POSITION,
    LOAD_IMAGE,
    LOAD_GOOD_BLOCKS,
    LOAD_GOOD_IMAGE,
    LOAD_REASON,
) = range(6)
LOAD_WORDS: Final = 6
"""BLOCKS: to load behind the leased ones. POSITION: of the checkpoint to load, or 0. IMAGE: its
image, once taken. GOOD: what came whole."""

_SEQUENCE_BEGUN: Final = int(EventType.SEQUENCE_BEGUN)
_PAGE_LOADING: Final = int(EventType.PAGE_LOADING)
_PAGE_DRAINING: Final = int(EventType.PAGE_DRAINING)
_LOADING: Final = int(PageState.LOADING)
_CHECKPOINT: Final = int(Role.CHECKPOINT)
_HISTORY: Final = int(Role.HISTORY)


@compiled
def begin_load(arena: Arena, ring: Arena, plan: Arena, ask: Arena, load: Arena, now_ns: int) -> int:
    """Begin a load behind a planned prefix, and pin that prefix.

    Args:
        arena: the arena.
        ring: the ring.
        plan: int64[n, 4], the blocks that are here, as in :func:`.begin.begin`.
        ask: int64[ASK_WORDS]: their number, the key of the last one, the seed.
        load: int64[LOAD_WORDS].
        now_ns: the call's time.

    Returns:
        RING_FULL, STALE, NO_ROOM (nothing changed), REFUSED, or the row; then :func:`take_load`.

    Mutates:
        arena, ring.
    """
    if not plan_is_fresh(arena, plan, ask):
        return STALE
    row = arena[META_FREE_SEQUENCE]
    images = 1 if load[LOAD_POSITION] != 0 else 0
    if ask[ASK_NUM_BLOCKS] + load[LOAD_BLOCKS] > arena[META_MAX_BLOCKS]:
        return NO_ROOM
    blocks = available(arena, True) - idle_blocks_of(arena, plan, ask)
    if row == 0 or blocks < load[LOAD_BLOCKS] or available(arena, False) < images:
        return NO_ROOM
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    identity = arena[META_NEXT_HOLDER] << 16 | row
    b = row | load[LOAD_POSITION] << 32
    seed_0, seed_1 = ask[ASK_SEED_0], ask[ASK_SEED_1]
    flags = FOR_LOAD << 8
    code = emit_note(arena, ring, now_ns, _SEQUENCE_BEGUN, 0, flags, identity, b, seed_0, seed_1)
    if ask[ASK_NUM_BLOCKS] > 0 and code == DONE:
        code = emit_grant(arena, ring, now_ns, row, identity, ask)
    if code != DONE:
        return REFUSED
    publish(arena, ring)
    return row


@compiled
def take_load(arena: Arena, ring: Arena, row: int, leased: int, load: Arena, now_ns: int) -> int:
    """Take the pages of a load that has begun, and mark them LOADING.

    Args:
        arena: the arena.
        ring: the ring.
        row: of the load.
        leased: blocks of the prefix it pins.
        load: int64[LOAD_WORDS].
        now_ns: the call's time.

    Returns:
        DONE, MORE (call again), RING_FULL (nothing changed by this call) or REFUSED.

    Mutates:
        arena, ring, load.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    last = last_seqno_of_call(arena, ring)
    holder = holder_table(arena)[row]
    code = DONE
    if load[LOAD_POSITION] != 0 and load[LOAD_IMAGE] == 0:
        code = make_room(arena, ring, now_ns, False, 1)
        image = 0
        if code == DONE:
            position = load[LOAD_POSITION]
            image = reserve_unit(arena, ring, now_ns, False, row, position, _CHECKPOINT)
            if image <= 0:
                return REFUSED
            load[LOAD_IMAGE] = image
            code = emit_for_unit(arena, ring, now_ns, _PAGE_LOADING, False, image, 0)
    while code == DONE and holder[HOLDER_BLOCKS] < leased + load[LOAD_BLOCKS]:
        if arena[META_LAST_SEQNO] >= last:
            publish(arena, ring)
            return MORE
        code = make_room(arena, ring, now_ns, True, 1)
        if code == DONE:
            index = holder[HOLDER_BLOCKS]
            block = reserve_unit(arena, ring, now_ns, True, row, index, _HISTORY)
            if block <= 0:
                return REFUSED
            code = emit_for_unit(arena, ring, now_ns, _PAGE_LOADING, True, block, 0)
    if code != DONE:
        return REFUSED
    publish(arena, ring)
    return DONE


@compiled
def end_load(
    arena: Arena,
    ring: Arena,
    row: int,
    work: Arena,
    sums: Arena,
    load: Arena,
    flags: int,
    now_ns: int,
) -> int:
    """Seal what a load brought whole, from the root on, and give up the rest. I/O has ended.

    A load whose reader changed meanwhile (its holder is tainted) seals nothing.

    Args:
        arena: the arena.
        ring: the ring.
        row: of the load.
        work: int64[LOAD_BLOCKS, WORK_SUMS + history groups], keys and checksums of its blocks.
        sums: int64[2 + state groups], key and checksums of its checkpoint.
        load: int64[LOAD_WORDS].
        flags: flags of the PAGE_SEALED events.
        now_ns: the call's time.

    Returns:
        DONE, MORE (call again with the same arguments), RING_FULL (nothing changed by this call)
        or REFUSED.

    Mutates:
        arena, ring, load.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    last = last_seqno_of_call(arena, ring)
    holder = holder_table(arena)[row]
    image = load[LOAD_IMAGE]
    if holder[HOLDER_TAINTED] != 0:
        load[LOAD_GOOD_BLOCKS], load[LOAD_GOOD_IMAGE] = 0, 0
    first = holder[HOLDER_BLOCKS] - load[LOAD_BLOCKS]
    end = first + load[LOAD_GOOD_BLOCKS]
    code = DONE
    while code == DONE and holder[HOLDER_SEALED] < end:
        if arena[META_LAST_SEQNO] >= last:
            publish(arena, ring)
            return MORE
        index = holder[HOLDER_SEALED]
        block = holder_blocks(arena)[row, index]
        this = work[index - first]
        parent = parent_to_name(arena, row, index)
        key_0, key_1 = this[WORK_KEY_0], this[WORK_KEY_1]
        code = seal_unit(
            arena, ring, now_ns, True, block, key_0, key_1, this[WORK_SUMS:], parent, flags
        )
    if code == DONE and image != 0:
        if load[LOAD_GOOD_IMAGE] != 0:
            position = load[LOAD_POSITION]
            code = seal_unit(
                arena, ring, now_ns, False, image, sums[0], sums[1], sums[2:], position, flags
            )
        else:
            code = give_up(arena, ring, now_ns, False, image, load[LOAD_REASON])
        load[LOAD_IMAGE] = 0
    while code == DONE and holder[HOLDER_BLOCKS] > holder[HOLDER_SEALED]:
        if arena[META_LAST_SEQNO] >= last:
            publish(arena, ring)
            return MORE
        block = holder_blocks(arena)[row, holder[HOLDER_BLOCKS] - 1]
        code = give_up(arena, ring, now_ns, True, block, load[LOAD_REASON])
        load[LOAD_BLOCKS] -= 1
    if code == DONE:
        code = empty_limbo(arena, ring, now_ns, last)
        publish(arena, ring)
        return code
    return REFUSED


@compiled
def drain_load(arena: Arena, ring: Arena, row: int, load: Arena, now_ns: int) -> int:
    """A load is given up while I/O may still write its pages: they drain until it has ended.

    Returns:
        DONE, MORE (call again), RING_FULL (nothing changed by this call) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    last = last_seqno_of_call(arena, ring)
    holder = holder_table(arena)[row]
    reason = load[LOAD_REASON]
    image = load[LOAD_IMAGE]
    code = DONE
    if image != 0 and unit_is_in(arena, False, image, _LOADING):
        code = emit_for_unit(arena, ring, now_ns, _PAGE_DRAINING, False, image, reason)
    for index in range(holder[HOLDER_BLOCKS] - 1, holder[HOLDER_SEALED] - 1, -1):
        block = holder_blocks(arena)[row, index]
        if code == DONE and unit_is_in(arena, True, block, _LOADING):
            if arena[META_LAST_SEQNO] >= last:
                publish(arena, ring)
                return MORE
            code = emit_for_unit(arena, ring, now_ns, _PAGE_DRAINING, True, block, reason)
    if code != DONE:
        return REFUSED
    publish(arena, ring)
    return DONE

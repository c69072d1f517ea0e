"""finish, cancel and the end of a cancelled sequence: giving everything back."""

from typing import Final

from .commit import seal_unit
from .compile import compiled, helper
from .emit import emit_note
from .events import EventType, Reason
from .index import find_unit
from .ring import publish
from .room import (
    DONE,
    MORE,
    REFUSED,
    RING_FULL,
    STALE,
    emit_for_unit,
    empty_limbo,
    give_up,
    last_seqno_of_call,
    quarter_is_free,
    unit_is_in,
)
from .states import PageState
from .steps import STEP_IN_FLIGHT, STEP_ROLLING, STEP_ROLLING_POSITION
from .views import (
    holder_blocks,
    holder_table,
    unit_rows,
)
from .words import (
    HOLDER_BLOCKS,
    HOLDER_DRAINING,
    HOLDER_ID,
    HOLDER_IMAGES,
    HOLDER_KIND,
    HOLDER_NUM_IMAGES,
    HOLDER_SEALED,
    HOLDER_SEQUENCE,
    HOLDER_TAINTED,
    META_BLOCK_TOKENS,
    META_LAST_SEQNO,
    META_NUM_SEQUENCES,
    UNIT_KEY_0,
    UNIT_KEY_1,
    Arena,
)

__all__ = ["cancel_in_flight", "drain_limbo", "end_sequence", "rolling_to_seal"]

_SEQUENCE_FINISHED: Final = int(EventType.SEQUENCE_FINISHED)
_SEQUENCE_CANCELLED: Final = int(EventType.SEQUENCE_CANCELLED)
_SEQUENCE_SUSPENDED: Final = int(EventType.SEQUENCE_SUSPENDED)
_PAGE_DRAINING: Final = int(EventType.PAGE_DRAINING)
_CANCELLED: Final = int(Reason.CANCELLED)
_SUSPENDED: Final = int(Reason.SUSPENDED)
_DRAINING: Final = int(PageState.DRAINING)


@helper
def find_sequence(arena: Arena, identity: int) -> int:
    """Row of a sequence that runs or drains, or 0."""
    holders = holder_table(arena)
    row = identity & 0xFFFF
    if row == 0 or row > arena[META_NUM_SEQUENCES] or holders[row, HOLDER_ID] != identity:
        return 0
    kind = holders[row, HOLDER_KIND]
    return row if kind in (HOLDER_SEQUENCE, HOLDER_DRAINING) else 0


@compiled
def rolling_to_seal(arena: Arena, steps: Arena, row: int) -> int:
    """The rolling image that finish would seal as a checkpoint, or 0; changes nothing."""
    blocks = unit_rows(arena, True)
    image = steps[row, STEP_ROLLING]
    if image == 0 or holder_table(arena)[row, HOLDER_TAINTED] != 0:
        return 0
    block = block_before(arena, row, steps[row, STEP_ROLLING_POSITION])
    key_0, key_1 = (
        blocks[block, UNIT_KEY_0],
        blocks[block, UNIT_KEY_1],
    )
    return 0 if find_unit(arena, False, key_0, key_1) != 0 else image


@helper
def block_before(arena: Arena, row: int, position: int) -> int:
    """The block of a sequence that ends at an aligned position."""
    return holder_blocks(arena)[row, position // arena[META_BLOCK_TOKENS] - 1]


@compiled
def end_sequence(
    arena: Arena, steps: Arena, ring: Arena, identity: int, sums: Arena, how: Arena, now_ns: int
) -> int:
    """End a sequence with nothing in flight: give up what is open, release what is sealed.

    Args:
        arena: the arena.
        steps: the step table.
        ring: the ring.
        identity: the sequence's id.
        sums: int64[state groups], checksums of the rolling image's pages.
        how: int64[3]: the :class:`.events.Reason`; image to seal as checkpoint, or 0; flags of its
            PAGE_SEALED events. The image is set to 0 once sealed.
        now_ns: the call's time.

    Returns:
        DONE, MORE (call again with the same arguments; the sequence may be gone by then:
        :func:`drain_limbo`), RING_FULL or STALE (nothing changed), or REFUSED.

    Mutates:
        arena, steps, ring, how.
    """
    blocks = unit_rows(arena, True)
    row = find_sequence(arena, identity)
    if row == 0:
        return STALE
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    last = last_seqno_of_call(arena, ring)
    holder = holder_table(arena)[row]
    code = DONE
    if how[1] != 0:
        position = steps[row, STEP_ROLLING_POSITION]
        block = block_before(arena, row, position)
        key_0, key_1 = (
            blocks[block, UNIT_KEY_0],
            blocks[block, UNIT_KEY_1],
        )
        code |= seal_unit(arena, ring, now_ns, False, how[1], key_0, key_1, sums, position, how[2])
        how[1] = 0
    while code == DONE and holder[HOLDER_BLOCKS] > holder[HOLDER_SEALED]:
        if arena[META_LAST_SEQNO] >= last:
            publish(arena, ring)
            return MORE
        block = holder_blocks(arena)[row, holder[HOLDER_BLOCKS] - 1]
        code |= give_up(arena, ring, now_ns, True, block, how[0])
    while code == DONE and holder[HOLDER_NUM_IMAGES] > 0:
        code |= give_up(arena, ring, now_ns, False, holder[HOLDER_IMAGES], how[0])
    if code == DONE:
        b = row | (holder[HOLDER_SEALED] * arena[META_BLOCK_TOKENS]) << 32
        kind = _SEQUENCE_SUSPENDED if how[0] == _SUSPENDED else _SEQUENCE_FINISHED
        code |= emit_note(arena, ring, now_ns, kind, 0, how[0], identity, b, 0, 0)
    if code != DONE:
        return REFUSED
    steps[row, :] = 0
    code = empty_limbo(arena, ring, now_ns, last)
    publish(arena, ring)
    return code


@compiled
def drain_limbo(arena: Arena, ring: Arena, now_ns: int) -> int:
    """Go on freeing units that a call which was cut left in limbo.

    Returns:
        DONE, MORE, RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    code = empty_limbo(arena, ring, now_ns, last_seqno_of_call(arena, ring))
    publish(arena, ring)
    return code


@compiled
def cancel_in_flight(arena: Arena, steps: Arena, ring: Arena, identity: int, now_ns: int) -> int:
    """Cancel a sequence whose steps are in flight: its open pages drain until they have ended.

    Returns:
        DONE, MORE (call again), RING_FULL or STALE (nothing changed), or REFUSED.

    Mutates:
        arena, ring.
    """
    row = find_sequence(arena, identity)
    if row == 0 or steps[row, STEP_IN_FLIGHT] == 0:
        return STALE
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    last = last_seqno_of_call(arena, ring)
    holder = holder_table(arena)[row]
    code = DONE
    if holder[HOLDER_KIND] == HOLDER_SEQUENCE:
        b = row | (holder[HOLDER_SEALED] * arena[META_BLOCK_TOKENS]) << 32
        code = emit_note(arena, ring, now_ns, _SEQUENCE_CANCELLED, 0, _CANCELLED, identity, b, 0, 0)
    for index in range(holder[HOLDER_BLOCKS] - 1, holder[HOLDER_SEALED] - 1, -1):
        block = holder_blocks(arena)[row, index]
        if not unit_is_in(arena, True, block, _DRAINING):
            if arena[META_LAST_SEQNO] >= last:
                publish(arena, ring)
                return MORE
            code |= emit_for_unit(arena, ring, now_ns, _PAGE_DRAINING, True, block, _CANCELLED)
    for place in range(holder[HOLDER_NUM_IMAGES]):
        image = holder[HOLDER_IMAGES + place]
        if not unit_is_in(arena, False, image, _DRAINING):
            code |= emit_for_unit(arena, ring, now_ns, _PAGE_DRAINING, False, image, _CANCELLED)
    if code != DONE:
        return REFUSED
    publish(arena, ring)
    return DONE

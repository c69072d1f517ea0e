"""After a crash: what becomes of the pages a dead incarnation left. Emits, like any call.

| state found                                | bytes trusted | decision                           |
|--------------------------------------------|---------------|------------------------------------|
| RESERVED, WRITING, OPEN, LOADING, DRAINING | any           | FREE (CRASHED)                     |
| sequences, leases                          | any           | ended; what they pinned released   |
| SEALED, unindexed and unreferenced         | any           | FREE, as at the end of any call    |
| SEALED                                     | yes           | kept; its checksum is checked next |
| SEALED                                     | no            | FREE (BYTES_UNTRUSTED)             |
| QUARANTINED                                | any           | FREE once its leases are ended     |

The order of the rows is the order in which they are carried out.
"""

from typing import Final

from .compile import compiled, helper
from .emit import emit_note
from .events import EventType, Reason
from .ring import publish
from .room import (
    DONE,
    MORE,
    REFUSED,
    RING_FULL,
    emit_for_unit,
    empty_limbo,
    last_seqno_of_call,
    quarter_is_free,
)
from .views import (
    holder_blocks,
    holder_table,
    unit_pages,
    unit_rows,
)
from .words import (
    HOLDER_BLOCKS,
    HOLDER_FREE,
    HOLDER_ID,
    HOLDER_KIND,
    HOLDER_SEALED,
    META_BLOCK_TOKENS,
    META_LAST_SEQNO,
    META_NUM_SEQUENCES,
    UNIT_BUILDING,
    UNIT_INDEXED,
    UNIT_OWNER,
    UNIT_STATE,
    Arena,
)

__all__ = ["end_incarnation"]

_PAGE_LOST: Final = int(EventType.PAGE_LOST)
_SEQUENCE_FINISHED: Final = int(EventType.SEQUENCE_FINISHED)
_LEASE_RELEASED: Final = int(EventType.LEASE_RELEASED)
_CRASHED: Final = int(Reason.CRASHED)
_BYTES_UNTRUSTED: Final = int(Reason.BYTES_UNTRUSTED)


@compiled
def end_incarnation(arena: Arena, ring: Arena, bytes_trusted: bool, now_ns: int) -> int:
    """Carry out the table above.

    Args:
        arena: the recovered arena.
        ring: the ring of the new incarnation.
        bytes_trusted: whether the pools' bytes survived and may be believed.
        now_ns: the call's time.

    Returns:
        DONE, MORE (call again), RING_FULL (nothing changed by this call) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    last = last_seqno_of_call(arena, ring)
    code = _end_holders(arena, ring, last, now_ns)
    if code == DONE:
        code = empty_limbo(arena, ring, now_ns, last)
    if code == DONE and not bytes_trusted:
        code = _lose_units(arena, ring, True, last, now_ns)
        if code == DONE:
            code = _lose_units(arena, ring, False, last, now_ns)
    if code != REFUSED:
        publish(arena, ring)
    return code


@helper
def _end_holders(arena: Arena, ring: Arena, last: int, now_ns: int) -> int:
    holders = holder_table(arena)
    for row in range(1, holders.shape[0]):
        holder = holders[row]
        if holder[HOLDER_KIND] == HOLDER_FREE:
            continue
        while holder[HOLDER_BLOCKS] > holder[HOLDER_SEALED]:
            if arena[META_LAST_SEQNO] >= last:
                return MORE
            block = holder_blocks(arena)[row, holder[HOLDER_BLOCKS] - 1]
            if emit_for_unit(arena, ring, now_ns, _PAGE_LOST, True, block, _CRASHED) != DONE:
                return REFUSED
        for image in range(1, unit_pages(arena, False).shape[0]):
            this = unit_rows(arena, False)[image]
            if this[UNIT_STATE] != UNIT_BUILDING or this[UNIT_OWNER] != row:
                continue
            if emit_for_unit(arena, ring, now_ns, _PAGE_LOST, False, image, _CRASHED) != DONE:
                return REFUSED
        if arena[META_LAST_SEQNO] >= last:
            return MORE
        identity = holder[HOLDER_ID]
        if row <= arena[META_NUM_SEQUENCES]:
            b = row | (holder[HOLDER_SEALED] * arena[META_BLOCK_TOKENS]) << 32
            code = emit_note(
                arena, ring, now_ns, _SEQUENCE_FINISHED, 0, _CRASHED, identity, b, 0, 0
            )
        else:
            code = emit_note(arena, ring, now_ns, _LEASE_RELEASED, 0, _CRASHED, identity, row, 0, 0)
        if code != DONE:
            return REFUSED
    return DONE


@helper
def _lose_units(arena: Arena, ring: Arena, is_block: bool, last: int, now_ns: int) -> int:
    for unit in range(1, unit_pages(arena, is_block).shape[0]):
        if unit_rows(arena, is_block)[unit, UNIT_STATE] == UNIT_INDEXED:
            if arena[META_LAST_SEQNO] >= last:
                return MORE
            code = emit_for_unit(arena, ring, now_ns, _PAGE_LOST, is_block, unit, _BYTES_UNTRUSTED)
            if code != DONE:
                return REFUSED
    return DONE

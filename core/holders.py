"""Sequences and leases as apply sees them: begun, granted, released, finished.

Pinning a prefix is one event: the key of its last block and how many blocks it has. The blocks
below are found here, by the parent links and, where a link no longer names the block of that key
(its parent was withdrawn and computed again), by the parent's key.
"""

from .compile import compiled, helper
from .events import WITH_CHECKPOINT, WITH_PARTIAL
from .index import find_unit
from .prefetch import AHEAD, prefetch_unit
from .refusals import NO_SUCH_HOLDER, NOT_FOUND, OK, OUT_OF_ORDER
from .units import pin, release
from .views import (
    holder_blocks,
    holder_table,
    unit_rows,
)
from .words import (
    HOLDER_BLOCKS,
    HOLDER_CHECKPOINT,
    HOLDER_DRAINING,
    HOLDER_ID,
    HOLDER_KIND,
    HOLDER_LEASE,
    HOLDER_LEASED,
    HOLDER_NEXT,
    HOLDER_NUM_IMAGES,
    HOLDER_ORIGIN,
    HOLDER_ORIGIN_GENERATION,
    HOLDER_OWNER,
    HOLDER_PARTIAL,
    HOLDER_PARTIAL_GENERATION,
    HOLDER_PARTIAL_ORIGIN,
    HOLDER_PROMPT,
    HOLDER_SEALED,
    HOLDER_SEED_0,
    HOLDER_SEED_1,
    HOLDER_SEQUENCE,
    HOLDER_TAINTED,
    META_FREE_LEASE,
    META_FREE_SEQUENCE,
    META_MAX_BLOCKS,
    META_NEXT_HOLDER,
    META_NUM_SEQUENCES,
    UNIT_CANONICAL,
    UNIT_GENERATION,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_PARENT,
    UNIT_PARENT_KEY_0,
    UNIT_PARENT_KEY_1,
    UNIT_RESUMES,
    UNIT_STATE,
    Arena,
)

__all__ = [
    "begin_sequence",
    "cancel_sequence",
    "finish_sequence",
    "fork_sequence",
    "grant_lease",
    "parent_of",
    "release_checkpoint",
    "release_lease",
    "taint_holders",
]

_MASK_32 = 0xFFFF_FFFF


@helper
def begin_sequence(arena: Arena, event: Arena) -> int:
    """SEQUENCE_BEGUN: the first free sequence row becomes a running sequence."""
    row = event[5] & _MASK_32
    if row == 0 or row != arena[META_FREE_SEQUENCE]:
        return NO_SUCH_HOLDER
    if event[4] != (arena[META_NEXT_HOLDER] << 16) | row:
        return OUT_OF_ORDER
    holder = holder_table(arena)[row]
    arena[META_FREE_SEQUENCE] = holder[HOLDER_NEXT]
    arena[META_NEXT_HOLDER] += 1
    holder[HOLDER_NEXT] = 0
    holder[HOLDER_KIND] = HOLDER_SEQUENCE
    holder[HOLDER_ID] = event[4]
    holder[HOLDER_PROMPT] = (event[5] >> 32) & _MASK_32
    holder[HOLDER_SEED_0] = event[6]
    holder[HOLDER_SEED_1] = event[7]
    return OK


@compiled
def fork_sequence(arena: Arena, event: Arena) -> int:
    """SEQUENCE_FORKED: a new sequence's state is a copy of another's, whose origin is its own."""
    holders = holder_table(arena)
    row, parent = event[5] & _MASK_32, event[6] & 0xFFFF
    last = arena[META_NUM_SEQUENCES]
    if row == 0 or row > last or holders[row, HOLDER_ID] != event[4]:
        return NO_SUCH_HOLDER
    if parent == 0 or parent > last or holders[parent, HOLDER_ID] != event[6]:
        return NO_SUCH_HOLDER
    holders[row, HOLDER_ORIGIN] = holders[parent, HOLDER_ORIGIN]
    holders[row, HOLDER_ORIGIN_GENERATION] = holders[parent, HOLDER_ORIGIN_GENERATION]
    holders[row, HOLDER_PARTIAL_ORIGIN] = holders[parent, HOLDER_PARTIAL_ORIGIN]
    holders[row, HOLDER_PARTIAL_GENERATION] = holders[parent, HOLDER_PARTIAL_GENERATION]
    return OK


@helper
def parent_of(arena: Arena, block: int) -> int:
    """The indexed block below an indexed block, or 0."""
    rows = unit_rows(arena, True)
    key_0, key_1 = rows[block, UNIT_PARENT_KEY_0], rows[block, UNIT_PARENT_KEY_1]
    parent = rows[block, UNIT_PARENT]
    if (
        rows[parent, UNIT_STATE] == UNIT_INDEXED
        and rows[parent, UNIT_KEY_0] == key_0
        and rows[parent, UNIT_KEY_1] == key_1
    ):
        return parent
    return find_unit(arena, True, key_0, key_1)


@helper
def grant_lease(arena: Arena, event: Arena) -> int:
    """LEASE_GRANTED: pin a prefix (and its checkpoint) for a sequence or for a new lease."""
    holders = holder_table(arena)
    num_blocks = (event[7] >> 32) & _MASK_32
    row = event[7] & 0xFFFF
    if row == 0 or row >= holders.shape[0] or num_blocks > arena[META_MAX_BLOCKS]:
        return NO_SUCH_HOLDER
    holder = holders[row]
    if row <= arena[META_NUM_SEQUENCES]:
        if holder[HOLDER_KIND] != HOLDER_SEQUENCE or holder[HOLDER_ID] != event[6]:
            return NO_SUCH_HOLDER
        if holder[HOLDER_BLOCKS] != 0:
            return OUT_OF_ORDER
    elif row != arena[META_FREE_LEASE]:
        return NO_SUCH_HOLDER
    block = find_unit(arena, True, event[4], event[5])
    checkpoint, partial = 0, 0
    if (event[2] >> 40) & WITH_CHECKPOINT:
        checkpoint = find_unit(arena, False, event[4], event[5])
        if checkpoint == 0:
            return NOT_FOUND
    if (event[2] >> 40) & WITH_PARTIAL:
        if block == 0:
            return NOT_FOUND
        partial = block
        pin(arena, True, partial)
        block = parent_of(arena, partial) if num_blocks > 0 else 0
    for index in range(num_blocks - 1, -1, -1):
        if block == 0:
            return NOT_FOUND
        holder_blocks(arena)[row, index] = block
        pin(arena, True, block)
        if index > 0:
            block = parent_of(arena, block)
    if checkpoint != 0:
        pin(arena, False, checkpoint)
        if row <= arena[META_NUM_SEQUENCES]:
            image = unit_rows(arena, False)[checkpoint]
            image[UNIT_RESUMES] += 1
            holder[HOLDER_ORIGIN] = checkpoint
            holder[HOLDER_ORIGIN_GENERATION] = image[UNIT_GENERATION]
    if partial != 0 and row <= arena[META_NUM_SEQUENCES]:
        holder[HOLDER_PARTIAL_ORIGIN] = partial
        holder[HOLDER_PARTIAL_GENERATION] = unit_rows(arena, True)[partial, UNIT_GENERATION]
    if row > arena[META_NUM_SEQUENCES]:
        arena[META_FREE_LEASE] = holder[HOLDER_NEXT]
        holder[HOLDER_NEXT] = 0
        holder[HOLDER_KIND] = HOLDER_LEASE
        holder[HOLDER_ID] = (arena[META_NEXT_HOLDER] << 16) | row
        holder[HOLDER_OWNER] = event[6]
        arena[META_NEXT_HOLDER] += 1
    holder[HOLDER_BLOCKS] = num_blocks
    holder[HOLDER_LEASED] = num_blocks
    holder[HOLDER_SEALED] = num_blocks
    holder[HOLDER_CHECKPOINT] = checkpoint
    holder[HOLDER_PARTIAL] = partial
    return OK


@helper
def release_checkpoint(arena: Arena, event: Arena) -> int:
    """CHECKPOINT_RELEASED: the holder has copied the checkpoint (and partial block) it began on."""
    holders = holder_table(arena)
    row = event[5] & _MASK_32
    if row == 0 or row >= holders.shape[0] or holders[row, HOLDER_ID] != event[4]:
        return NO_SUCH_HOLDER
    if holders[row, HOLDER_CHECKPOINT] == 0 and holders[row, HOLDER_PARTIAL] == 0:
        return NOT_FOUND
    _release_copied(arena, row)
    return OK


@helper
def _release_copied(arena: Arena, row: int) -> None:
    """Release the checkpoint and the partial block a holder began on, where it holds them still."""
    holder = holder_table(arena)[row]
    if holder[HOLDER_CHECKPOINT] != 0:
        release(arena, False, holder[HOLDER_CHECKPOINT])
    if holder[HOLDER_PARTIAL] != 0:
        release(arena, True, holder[HOLDER_PARTIAL])
    holder[HOLDER_CHECKPOINT] = 0
    holder[HOLDER_PARTIAL] = 0


@compiled
def taint_holders(arena: Arena, is_block: bool, unit: int) -> None:
    """A unit failed validation: sequences that hold it, or began on it, are tainted for good."""
    if unit == 0:
        return
    holders = holder_table(arena)
    generation = unit_rows(arena, is_block)[unit, UNIT_GENERATION]
    for row in range(1, arena[META_NUM_SEQUENCES] + 1):
        holder = holders[row]
        if is_block:
            for index in range(holder[HOLDER_BLOCKS]):
                if holder_blocks(arena)[row, index] == unit:
                    holder[HOLDER_TAINTED] = 1
            began = holder[HOLDER_PARTIAL_ORIGIN] == unit
            if began and holder[HOLDER_PARTIAL_GENERATION] == generation:
                holder[HOLDER_TAINTED] = 1
        elif holder[HOLDER_ORIGIN] == unit and holder[HOLDER_ORIGIN_GENERATION] == generation:
            holder[HOLDER_TAINTED] = 1


@helper
def release_lease(arena: Arena, event: Arena) -> int:
    """LEASE_RELEASED: a lease held outside sequences ends."""
    holders = holder_table(arena)
    row = event[5] & _MASK_32
    if row <= arena[META_NUM_SEQUENCES] or row >= holders.shape[0]:
        return NO_SUCH_HOLDER
    if holders[row, HOLDER_KIND] != HOLDER_LEASE or holders[row, HOLDER_ID] != event[4]:
        return NO_SUCH_HOLDER
    _release_all(arena, row)
    holders[row, HOLDER_NEXT] = arena[META_FREE_LEASE]
    arena[META_FREE_LEASE] = row
    return OK


@helper
def cancel_sequence(arena: Arena, event: Arena) -> int:
    """SEQUENCE_CANCELLED: it runs no more, but steps in flight may still touch its pages."""
    holders = holder_table(arena)
    row = event[5] & _MASK_32
    if row == 0 or row > arena[META_NUM_SEQUENCES] or holders[row, HOLDER_ID] != event[4]:
        return NO_SUCH_HOLDER
    if holders[row, HOLDER_KIND] != HOLDER_SEQUENCE:
        return OUT_OF_ORDER
    holders[row, HOLDER_KIND] = HOLDER_DRAINING
    return OK


@helper
def finish_sequence(arena: Arena, event: Arena) -> int:
    """SEQUENCE_FINISHED or SUSPENDED: release its blocks, last first; open pages are free."""
    holders = holder_table(arena)
    row = event[5] & _MASK_32
    if row == 0 or row > arena[META_NUM_SEQUENCES] or holders[row, HOLDER_ID] != event[4]:
        return NO_SUCH_HOLDER
    holder = holders[row]
    if holder[HOLDER_BLOCKS] != holder[HOLDER_SEALED] or holder[HOLDER_NUM_IMAGES] != 0:
        return OUT_OF_ORDER
    _release_all(arena, row)
    holders[row, HOLDER_NEXT] = arena[META_FREE_SEQUENCE]
    arena[META_FREE_SEQUENCE] = row
    return OK


@helper
def _release_all(arena: Arena, row: int) -> None:
    """Release what a holder pins, the end of the prefix first, and clear its row.

    The end first: so in the idle list a block always stands before the blocks it hangs from, and
    taking the head evicts leaves first.
    """
    holder = holder_table(arena)[row]
    for index in range(holder[HOLDER_BLOCKS] - 1, -1, -1):
        block = holder_blocks(arena)[row, index]
        if index >= AHEAD:
            prefetch_unit(arena, True, holder_blocks(arena)[row, index - AHEAD])
        canonical = unit_rows(arena, True)[block, UNIT_CANONICAL]
        release(arena, True, block)
        if canonical != 0:
            release(arena, True, canonical)
        holder_blocks(arena)[row, index] = 0
    _release_copied(arena, row)
    holder[:] = 0

"""suspend and fork: a sequence's exact state kept under a key, or copied for another sequence."""

from typing import Final

from .begin import (
    emit_begun,
    emit_granted,
    open_copies,
    open_unit,
    own_block,
    start_steps,
    take_own_units,
)
from .commit import parent_to_name, seal_unit
from .compile import compiled, helper
from .emit import emit_note
from .events import PARTIAL, EventType
from .index import find_unit
from .ring import publish
from .room import (
    DONE,
    NO_ROOM,
    REFUSED,
    RING_FULL,
    STALE,
    available,
    emit_for_unit,
    quarter_is_free,
    unit_is_in,
)
from .states import PageState
from .steps import (
    STEP_COMMITTED,
    STEP_EVERY,
    STEP_EXACT,
    STEP_IN_FLIGHT,
    STEP_POSITION,
    STEP_PROMPT_END,
    STEP_WRITTEN,
)
from .views import holder_blocks, holder_table, unit_rows
from .words import (
    HOLDER_ID,
    HOLDER_KIND,
    HOLDER_PROMPT,
    HOLDER_SEALED,
    HOLDER_SEED_0,
    HOLDER_SEED_1,
    HOLDER_SEQUENCE,
    HOLDER_TAINTED,
    META_BLOCK_TOKENS,
    META_FREE_SEQUENCE,
    META_IMAGES_PER_SEQUENCE,
    META_LAST_SEQNO,
    META_NEXT_HOLDER,
    META_ROLLBACK,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_REFS,
    Arena,
)

__all__ = ["fork", "fork_loaded", "keep_state", "state_to_keep"]

_PAGE_WRITING: Final = int(EventType.PAGE_WRITING)
_SEQUENCE_FORKED: Final = int(EventType.SEQUENCE_FORKED)
_OPEN: Final = int(PageState.OPEN)


@compiled
def state_to_keep(arena: Arena, steps: Arena, row: int) -> int:
    """Position at which a sequence's state can be kept when it is suspended, or 0; pure."""
    position = steps[row, STEP_POSITION]
    if holder_table(arena)[row, HOLDER_TAINTED] != 0 or position < steps[row, STEP_EXACT]:
        return 0
    if steps[row, STEP_WRITTEN] - position > arena[META_ROLLBACK]:
        return 0
    return position


@compiled
def keep_state(
    arena: Arena,
    steps: Arena,
    ring: Arena,
    row: int,
    key: Arena,
    block_sums: Arena,
    image_sums: Arena,
    flags: int,
    now_ns: int,
) -> int:
    """Seal a sequence's open block, if it stands inside one, and its state, under one key.

    Args:
        arena: the arena.
        steps: the step table.
        ring: the ring.
        row: the sequence's row; nothing is in flight, :func:`state_to_keep` is above 0.
        key: int64[2], at its position.
        block_sums: int64[history groups], checksums of the open block's pages.
        image_sums: int64[state groups], checksums of the committed image's pages.
        flags: flags of the PAGE_SEALED events.
        now_ns: the call's time.

    Returns:
        DONE, RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    position = steps[row, STEP_POSITION]
    code = DONE
    block = own_block(arena, row)
    if position % arena[META_BLOCK_TOKENS] != 0 and block != 0:
        code |= emit_for_unit(arena, ring, now_ns, _PAGE_WRITING, True, block, 0)
        if code == DONE:
            code |= open_unit(arena, ring, now_ns, True, block, position)
        if code == DONE:
            parent = parent_to_name(arena, row, holder_table(arena)[row, HOLDER_SEALED])
            partial = flags | PARTIAL
            code |= seal_unit(
                arena, ring, now_ns, True, block, key[0], key[1], block_sums, parent, partial
            )
    image = steps[row, STEP_COMMITTED]
    if image != 0 and code == DONE and find_unit(arena, False, key[0], key[1]) == 0:
        code |= seal_unit(
            arena, ring, now_ns, False, image, key[0], key[1], image_sums, position, flags
        )
    if code != DONE:
        return REFUSED
    publish(arena, ring)
    return DONE


@helper
def _is_stale(arena: Arena, steps: Arena, row: int) -> bool:
    """Whether a sequence cannot be forked: it runs no more, or its prefix is not all findable."""
    holder = holder_table(arena)[row]
    if holder[HOLDER_KIND] != HOLDER_SEQUENCE or holder[HOLDER_TAINTED] != 0:
        return True
    if steps[row, STEP_IN_FLIGHT] != 0:
        return True
    rows = unit_rows(arena, True)
    for index in range(holder[HOLDER_SEALED]):
        block = holder_blocks(arena)[row, index]
        if find_unit(arena, True, rows[block, UNIT_KEY_0], rows[block, UNIT_KEY_1]) == 0:
            return True
    return False


@helper
def _idle_blocks_shared(arena: Arena, row: int) -> int:
    """Blocks that a fork of a sequence takes off the idle list: its duplicates' counterparts."""
    rows = unit_rows(arena, True)
    count = 0
    for index in range(holder_table(arena)[row, HOLDER_SEALED]):
        block = holder_blocks(arena)[row, index]
        shared = find_unit(arena, True, rows[block, UNIT_KEY_0], rows[block, UNIT_KEY_1])
        if rows[shared, UNIT_REFS] == 0:
            count += 1
    return count


@compiled
def fork(arena: Arena, steps: Arena, ring: Arena, parent: int, now_ns: int) -> int:
    """Begin a sequence that shares what another has sealed.

    Args:
        arena: the arena.
        steps: the step table.
        ring: the ring.
        parent: the other sequence's row.
        now_ns: the call's time.

    Returns:
        RING_FULL, STALE, NO_ROOM (nothing changed), REFUSED, or the new sequence's row, whose pages
        are to be copied before :func:`fork_loaded`.

    Mutates:
        arena, steps, ring.
    """
    if _is_stale(arena, steps, parent):
        return STALE
    holder = holder_table(arena)[parent]
    tokens = arena[META_BLOCK_TOKENS]
    position, sealed = steps[parent, STEP_POSITION], holder[HOLDER_SEALED]
    wants_block = position % tokens != 0 and position // tokens >= sealed
    row = arena[META_FREE_SEQUENCE]
    if row == 0 or available(arena, False) < arena[META_IMAGES_PER_SEQUENCE]:
        return NO_ROOM
    if wants_block and available(arena, True) - _idle_blocks_shared(arena, parent) < 1:
        return NO_ROOM
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    identity = arena[META_NEXT_HOLDER] << 16 | row
    prompt = holder[HOLDER_PROMPT]
    seed_0, seed_1 = holder[HOLDER_SEED_0], holder[HOLDER_SEED_1]
    code = emit_begun(arena, ring, now_ns, identity, prompt, seed_0, seed_1)
    if sealed > 0 and code == DONE:
        leaf = unit_rows(arena, True)[holder_blocks(arena)[parent, sealed - 1]]
        key_0, key_1 = leaf[UNIT_KEY_0], leaf[UNIT_KEY_1]
        code = emit_granted(arena, ring, now_ns, row, identity, key_0, key_1, sealed, 0)
    if code == DONE:
        code = take_own_units(arena, ring, now_ns, row, position, wants_block)
    if code == DONE:
        b = row | position << 32
        code = emit_note(
            arena, ring, now_ns, _SEQUENCE_FORKED, 0, 0, identity, b, holder[HOLDER_ID], 0
        )
    if code != DONE:
        return REFUSED
    start_steps(arena, steps, row, position, prompt)
    steps[row, STEP_WRITTEN] = steps[parent, STEP_WRITTEN]
    steps[row, STEP_EXACT] = steps[parent, STEP_EXACT]
    steps[row, STEP_EVERY] = steps[parent, STEP_EVERY]
    steps[row, STEP_PROMPT_END] = steps[parent, STEP_PROMPT_END]
    publish(arena, ring)
    return row


@compiled
def fork_loaded(arena: Arena, steps: Arena, ring: Arena, row: int, parent: int, now_ns: int) -> int:
    """A forked sequence's own pages now hold copies of its parent's.

    Returns:
        DONE, RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    image = steps[row, STEP_COMMITTED]
    source = steps[parent, STEP_COMMITTED]
    if image == 0 or not unit_is_in(arena, False, source, _OPEN):
        image = 0
    code = open_copies(arena, steps, ring, now_ns, row, image, own_block(arena, row))
    if code != DONE:
        return REFUSED
    publish(arena, ring)
    return DONE

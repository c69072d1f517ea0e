"""begin: pin a planned prefix, all of it or nothing."""

from typing import Final

from .apply import Role
from .ask import (
    ASK_CAPTURE_0,
    ASK_CHECKPOINT,
    ASK_EVERY,
    ASK_EXACT,
    ASK_KEY_0,
    ASK_KEY_1,
    ASK_NUM_BLOCKS,
    ASK_OWNER,
    ASK_PARTIAL,
    ASK_POSITION,
    ASK_PROMPT_TOKENS,
    ASK_RESUMED_B,
    ASK_RESUMED_C,
    ASK_RESUMED_D,
    ASK_SEED_0,
    ASK_SEED_1,
    idle_blocks_of,
    plan_is_fresh,
)
from .compile import compiled, helper
from .emit import emit_note, emit_page
from .events import WITH_CHECKPOINT, WITH_PARTIAL, EventType
from .ring import publish
from .room import (
    DONE,
    NO_ROOM,
    REFUSED,
    RING_FULL,
    STALE,
    available,
    emit_for_unit,
    empty_limbo,
    last_seqno_of_call,
    make_room,
    quarter_is_free,
    reserve_unit,
)
from .sealing import state_entries
from .steps import (
    STEP_CAPTURES,
    STEP_COMMITTED,
    STEP_EVERY,
    STEP_EXACT,
    STEP_FRONT,
    STEP_POSITION,
    STEP_PROMPT_END,
    STEP_WRITTEN,
)
from .views import (
    holder_blocks,
    holder_table,
    pool_table,
    unit_pages,
    unit_rows,
)
from .words import (
    HOLDER_BLOCKS,
    HOLDER_CHECKPOINT,
    HOLDER_ID,
    HOLDER_IMAGES,
    HOLDER_PARTIAL,
    HOLDER_SEALED,
    META_BLOCK_TOKENS,
    META_FREE_SEQUENCE,
    META_IMAGES_PER_SEQUENCE,
    META_LAST_SEQNO,
    META_NEXT_HOLDER,
    META_NUM_HISTORY,
    POOL_RATIO,
    POOL_ROWS,
    UNIT_OWNER,
    UNIT_POSITION,
    UNIT_REFS,
    Arena,
)

__all__ = ["begin", "checkpoint_loaded", "why_not"]

_SEQUENCE_BEGUN: Final = int(EventType.SEQUENCE_BEGUN)
_LEASE_GRANTED: Final = int(EventType.LEASE_GRANTED)
_CHECKPOINT_RELEASED: Final = int(EventType.CHECKPOINT_RELEASED)
_REQUEST_RESUMED: Final = int(EventType.REQUEST_RESUMED)
_PAGE_WRITING: Final = int(EventType.PAGE_WRITING)
_PAGE_OPENED: Final = int(EventType.PAGE_OPENED)
_PRIVATE: Final = int(Role.PRIVATE)
_HISTORY: Final = int(Role.HISTORY)


@helper
def emit_grant(arena: Arena, ring: Arena, now_ns: int, row: int, owner: int, ask: Arena) -> int:
    """LEASE_GRANTED for the planned prefix."""
    flags = WITH_CHECKPOINT << 8 if ask[ASK_CHECKPOINT] != 0 else 0
    if ask[ASK_PARTIAL] != 0:
        flags |= WITH_PARTIAL << 8
    key_0, key_1 = ask[ASK_KEY_0], ask[ASK_KEY_1]
    return emit_granted(arena, ring, now_ns, row, owner, key_0, key_1, ask[ASK_NUM_BLOCKS], flags)


@helper
def emit_granted(
    arena: Arena,
    ring: Arena,
    now_ns: int,
    row: int,
    owner: int,
    key_0: int,
    key_1: int,
    num_blocks: int,
    flags: int,
) -> int:
    """LEASE_GRANTED for the prefix under a key."""
    d = row | num_blocks << 32
    return emit_note(arena, ring, now_ns, _LEASE_GRANTED, 0, flags, key_0, key_1, owner, d)


@helper
def emit_begun(
    arena: Arena,
    ring: Arena,
    now_ns: int,
    identity: int,
    prompt_tokens: int,
    seed_0: int,
    seed_1: int,
) -> int:
    """SEQUENCE_BEGUN."""
    b = (identity & 0xFFFF) | prompt_tokens << 32
    return emit_note(arena, ring, now_ns, _SEQUENCE_BEGUN, 0, 0, identity, b, seed_0, seed_1)


@helper
def emit_resumed(arena: Arena, ring: Arena, now_ns: int, identity: int, ask: Arena) -> int:
    """REQUEST_RESUMED: where a request resumes, and where what it reuses came from."""
    b, c, d = ask[ASK_RESUMED_B], ask[ASK_RESUMED_C], ask[ASK_RESUMED_D]
    return emit_note(arena, ring, now_ns, _REQUEST_RESUMED, 0, 0, identity, b, c, d)


@compiled
def why_not(arena: Arena, plan: Arena, ask: Arena) -> int:
    """Whether :func:`begin` would begin now: DONE, STALE or NO_ROOM; changes nothing."""
    if not plan_is_fresh(arena, plan, ask):
        return STALE
    spare = available(arena, False)
    if ask[ASK_CHECKPOINT] != 0 and unit_rows(arena, False)[ask[ASK_CHECKPOINT], UNIT_REFS] == 0:
        spare -= 1
    if arena[META_FREE_SEQUENCE] == 0 or spare < arena[META_IMAGES_PER_SEQUENCE]:
        return NO_ROOM
    if ask[ASK_PARTIAL] != 0 and available(arena, True) - idle_blocks_of(arena, plan, ask) < 1:
        return NO_ROOM
    return DONE


@compiled
def begin(arena: Arena, steps: Arena, ring: Arena, plan: Arena, ask: Arena, now_ns: int) -> int:
    """Begin a sequence on a planned prefix.

    Args:
        arena: the arena.
        steps: the step table.
        ring: the ring.
        plan: int64[n, 4], block ids, their generations and keys.
        ask: int64[ASK_WORDS].
        now_ns: the call's time.

    Returns:
        RING_FULL, STALE, NO_ROOM (nothing changed), REFUSED, or the sequence's row.

    Mutates:
        arena, steps, ring.
    """
    code = why_not(arena, plan, ask)
    if code != DONE:
        return code
    row = arena[META_FREE_SEQUENCE]
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    identity = arena[META_NEXT_HOLDER] << 16 | row
    seed_0, seed_1 = ask[ASK_SEED_0], ask[ASK_SEED_1]
    code = emit_begun(arena, ring, now_ns, identity, ask[ASK_PROMPT_TOKENS], seed_0, seed_1)
    if (ask[ASK_NUM_BLOCKS] > 0 or ask[ASK_PARTIAL] != 0) and code == DONE:
        code = emit_grant(arena, ring, now_ns, row, identity, ask)
    if code == DONE:
        code = emit_resumed(arena, ring, now_ns, identity, ask)
    if code == DONE:
        wants_block = ask[ASK_PARTIAL] != 0
        code = take_own_units(arena, ring, now_ns, row, ask[ASK_POSITION], wants_block)
    if code != DONE:
        return REFUSED
    start_steps(arena, steps, row, ask[ASK_POSITION], ask[ASK_PROMPT_TOKENS])
    steps[row, STEP_EXACT] = ask[ASK_EXACT]
    steps[row, STEP_EVERY] = ask[ASK_EVERY]
    for place in range(ASK_OWNER - ASK_CAPTURE_0):
        steps[row, STEP_CAPTURES + place] = ask[ASK_CAPTURE_0 + place]
    publish(arena, ring)
    return row


@helper
def take_own_units(
    arena: Arena, ring: Arena, now_ns: int, row: int, position: int, wants_block: bool
) -> int:
    """Reserve a new sequence's images, and its first own block where it continues inside one."""
    num_images = arena[META_IMAGES_PER_SEQUENCE]
    code = DONE
    if num_images > 0:
        code = make_room(arena, ring, now_ns, False, num_images)
        for _ in range(num_images):
            if code == DONE:
                code = min(reserve_unit(arena, ring, now_ns, False, row, position, _PRIVATE), DONE)
    if wants_block and code == DONE:
        code = make_room(arena, ring, now_ns, True, 1)
        index = holder_table(arena)[row, HOLDER_BLOCKS]
        if code == DONE:
            code = min(reserve_unit(arena, ring, now_ns, True, row, index, _HISTORY), DONE)
    return code


@helper
def start_steps(arena: Arena, steps: Arena, row: int, position: int, prompt_tokens: int) -> None:
    """The step table's row of a sequence that begins."""
    first = holder_table(arena)[row, HOLDER_IMAGES]
    tokens = arena[META_BLOCK_TOKENS]
    steps[row, :] = 0
    steps[row, STEP_POSITION] = position
    steps[row, STEP_WRITTEN] = position
    steps[row, STEP_COMMITTED] = first
    steps[row, STEP_FRONT] = first
    steps[row, STEP_PROMPT_END] = prompt_tokens // tokens * tokens


@helper
def open_unit(
    arena: Arena, ring: Arena, now_ns: int, is_block: bool, unit: int, position: int
) -> int:
    """OPENED for each page of a unit, with what is valid in it at a position."""
    rows = unit_rows(arena, is_block)
    parts = unit_pages(arena, is_block)
    first = 0 if is_block else arena[META_NUM_HISTORY]
    owner = holder_table(arena)[rows[unit, UNIT_OWNER], HOLDER_ID]
    b = unit | rows[unit, UNIT_POSITION] << 32
    valid = position
    if is_block:
        start = rows[unit, UNIT_POSITION] - arena[META_BLOCK_TOKENS]
        valid = max(position - start, 0)
    code = DONE
    for part in range(parts.shape[1]):
        group = first + part
        pool = pool_table(arena)[group]
        entries = valid // pool[POOL_RATIO] if is_block else state_entries(pool, position)
        head = 0 if is_block else position % pool[POOL_ROWS]
        slot = parts[unit, part]
        code |= emit_page(
            arena, ring, now_ns, _PAGE_OPENED, group, slot, 0, owner, b, entries, head
        )
    return code


@helper
def open_copies(
    arena: Arena, steps: Arena, ring: Arena, now_ns: int, row: int, image: int, block: int
) -> int:
    """A sequence's own image, and its own block, now hold copies: WRITING, then OPEN."""
    position = steps[row, STEP_POSITION]
    code = DONE
    if image != 0:
        code = emit_for_unit(arena, ring, now_ns, _PAGE_WRITING, False, image, 0)
        if code == DONE:
            code = open_unit(arena, ring, now_ns, False, image, position)
    if block != 0 and code == DONE:
        code = emit_for_unit(arena, ring, now_ns, _PAGE_WRITING, True, block, 0)
        if code == DONE:
            code = open_unit(arena, ring, now_ns, True, block, position)
    return code


@helper
def own_block(arena: Arena, row: int) -> int:
    """The first block of a sequence that is not sealed, or 0."""
    holder = holder_table(arena)[row]
    if holder[HOLDER_BLOCKS] == holder[HOLDER_SEALED]:
        return 0
    return holder_blocks(arena)[row, holder[HOLDER_SEALED]]


@compiled
def checkpoint_loaded(arena: Arena, steps: Arena, ring: Arena, row: int, now_ns: int) -> int:
    """The sequence's own pages now hold copies of the checkpoint and partial block it began on.

    Returns:
        DONE, RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    holder = holder_table(arena)[row]
    image = steps[row, STEP_COMMITTED] if holder[HOLDER_CHECKPOINT] != 0 else 0
    block = own_block(arena, row) if holder[HOLDER_PARTIAL] != 0 else 0
    code = open_copies(arena, steps, ring, now_ns, row, image, block)
    if code == DONE:
        code = emit_note(
            arena, ring, now_ns, _CHECKPOINT_RELEASED, 0, 0, holder[HOLDER_ID], row, 0, 0
        )
    if code != DONE:
        return REFUSED
    result = empty_limbo(arena, ring, now_ns, last_seqno_of_call(arena, ring))
    publish(arena, ring)
    return result

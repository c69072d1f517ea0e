"""reserve: decide which sequences of a batch fit, and take the pages their step will write."""

from typing import Final

from .apply import Role
from .compile import compiled, helper
from .events import EventType
from .ring import publish
from .room import (
    DONE,
    MORE,
    REFUSED,
    RING_FULL,
    STALE,
    available,
    emit_for_unit,
    last_seqno_of_call,
    make_room,
    quarter_is_free,
    reserve_unit,
    unit_is_in,
)
from .states import PageState
from .steps import (
    ACCEPTED,
    BUSY,
    FITS,
    ID,
    LONG,
    PAGES,
    READ_IMAGE,
    ROW,
    START,
    STATUS,
    STEP_COMMITTED,
    STEP_FRONT,
    STEP_IN_FLIGHT,
    STEP_IN_PLACE,
    STEP_PENDING,
    STEP_POSITION,
    STEP_ROLLING,
    STEP_ROLLING_POSITION,
    STEP_UNSETTLED,
    STEP_WRITTEN,
    STEP_WRITTEN_BEFORE,
    SWITCHED,
    TOKENS,
    WRITE_IMAGE,
    fits_in_place,
    other_image,
)
from .views import (
    holder_table,
    unit_pages,
)
from .words import (
    HOLDER_BLOCKS,
    HOLDER_ID,
    HOLDER_KIND,
    HOLDER_SEQUENCE,
    META_BLOCK_TOKENS,
    META_FREE_BLOCKS,
    META_LAST_SEQNO,
    META_MAX_BLOCKS,
    META_NUM_SEQUENCES,
    Arena,
)

__all__ = ["NO_TOKENS", "TWICE", "reserve", "take_blocks"]

TWICE: Final = -6
"""A sequence stands twice in one step."""
NO_TOKENS: Final = -7
"""A sequence is to compute less than one token."""
_PAGE_WRITING: Final = int(EventType.PAGE_WRITING)
_RESERVED: Final = int(PageState.RESERVED)
_HISTORY: Final = int(Role.HISTORY)


@helper
def _decide(arena: Arena, steps: Arena, step: Arena, row: int, num_tokens: int, room: int) -> int:
    """Status of one sequence; fills the image columns of its row in the step."""
    position = steps[row, STEP_POSITION] + steps[row, STEP_PENDING]
    longest = arena[META_MAX_BLOCKS] * arena[META_BLOCK_TOKENS]
    if num_tokens > longest or position + num_tokens > longest:
        return LONG
    step[READ_IMAGE] = steps[row, STEP_FRONT]
    step[WRITE_IMAGE] = steps[row, STEP_FRONT]
    step[SWITCHED] = 0
    if steps[row, STEP_FRONT] != 0 and not fits_in_place(arena, steps, row, num_tokens):
        if steps[row, STEP_IN_FLIGHT] != 0:
            return BUSY
        step[WRITE_IMAGE] = other_image(arena, steps, row, 0)
        step[SWITCHED] = 1
        if step[WRITE_IMAGE] == 0:
            return BUSY
    if blocks_wanted(arena, position + num_tokens, row) > room:
        return PAGES
    return FITS


@helper
def blocks_wanted(arena: Arena, end: int, row: int) -> int:
    """Blocks a sequence lacks to reach position ``end``."""
    tokens = arena[META_BLOCK_TOKENS]
    blocks = holder_table(arena)[row, HOLDER_BLOCKS]
    if end <= blocks * tokens:
        return 0
    return (end + tokens - 1) // tokens - blocks


@helper
def check_sequences(arena: Arena, step: Arena, marks: Arena) -> int:
    """Rows of the ids of a step: all running, none twice.

    Args:
        arena: the arena.
        step: int64[n, STEP_ROW_WORDS]; ID is read, ROW is written.
        marks: int64[1 + sequences], all zero before and after.
    """
    holders = holder_table(arena)
    code = DONE
    for number in range(step.shape[0]):
        row = step[number, ID] & 0xFFFF
        if (
            row == 0
            or row > arena[META_NUM_SEQUENCES]
            or holders[row, HOLDER_ID] != step[number, ID]
            or holders[row, HOLDER_KIND] != HOLDER_SEQUENCE
        ):
            code = STALE
        elif marks[row] != 0:
            code = TWICE
        elif step[number, TOKENS] < 1:
            code = NO_TOKENS
        if code != DONE:
            step[number, STATUS] = -1  # the culprit, for the error message
            for earlier in range(number):
                marks[step[earlier, ROW]] = 0
            return code
        step[number, ROW] = row
        marks[row] = 1
    for number in range(step.shape[0]):
        marks[step[number, ROW]] = 0
    return DONE


@compiled
def reserve(
    arena: Arena,
    steps: Arena,
    ring: Arena,
    step: Arena,
    sequences: Arena,
    num_tokens: Arena,
    marks: Arena,
    now_ns: int,
) -> int:
    """Reserve one step for a batch of sequences.

    Args:
        arena: the arena.
        steps: the step table.
        ring: the ring.
        step: int64[n, STEP_ROW_WORDS] of zeros, filled.
        sequences: int64[n], their ids.
        num_tokens: int64[n], tokens of each.
        marks: int64[1 + sequences] of zeros, scratch.
        now_ns: the call's time.

    Returns:
        DONE, MORE (call :func:`take_blocks` until DONE), RING_FULL, STALE, TWICE, NO_TOKENS
        (nothing changed) or REFUSED.

    Mutates:
        arena, steps, ring, step.
    """
    for number in range(step.shape[0]):
        step[number, ID] = sequences[number]
        step[number, TOKENS] = num_tokens[number]
    code = check_sequences(arena, step, marks)
    if code != DONE:
        return code
    room = available(arena, True)
    wanted = 0
    writes = False
    for number in range(step.shape[0]):
        this = step[number]
        row = this[ROW]
        this[STATUS] = _decide(arena, steps, this, row, this[TOKENS], room - wanted)
        if this[STATUS] == FITS:
            this[START] = steps[row, STEP_POSITION] + steps[row, STEP_PENDING]
            lacking = blocks_wanted(arena, this[START] + this[TOKENS], row)
            wanted += lacking
            image = this[WRITE_IMAGE]
            if image != 0 and unit_is_in(arena, False, image, _RESERVED):
                writes = True
                lacking += 1
            this[ACCEPTED] = lacking
    if (wanted > 0 or writes) and not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    for number in range(step.shape[0]):
        this = step[number]
        if this[STATUS] == FITS:
            if this[ACCEPTED] > 0:
                steps[this[ROW], STEP_UNSETTLED] = 1
                this[ACCEPTED] = 0
            _enter(steps, this)
    if wanted == 0 and not writes:
        return DONE
    return _take_blocks(arena, ring, step, now_ns)


@helper
def _enter(steps: Arena, step: Arena) -> None:
    """The step of one sequence is in flight."""
    row = step[ROW]
    steps[row, STEP_PENDING] += step[TOKENS]
    steps[row, STEP_IN_FLIGHT] += 1
    end = step[START] + step[TOKENS]
    if step[SWITCHED] == 0:
        steps[row, STEP_IN_PLACE] += step[TOKENS]
        steps[row, STEP_WRITTEN] = max(steps[row, STEP_WRITTEN], end)
        return
    steps[row, STEP_WRITTEN_BEFORE] = steps[row, STEP_WRITTEN]
    steps[row, STEP_WRITTEN] = end
    step[READ_IMAGE] = steps[row, STEP_COMMITTED]
    steps[row, STEP_FRONT] = step[WRITE_IMAGE]
    if steps[row, STEP_ROLLING] == step[WRITE_IMAGE]:
        steps[row, STEP_ROLLING] = 0
        steps[row, STEP_ROLLING_POSITION] = 0


@compiled
def take_blocks(arena: Arena, ring: Arena, step: Arena, now_ns: int) -> int:
    """Go on reserving the blocks of a step that was cut.

    Returns:
        DONE, MORE, RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, ring.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    return _take_blocks(arena, ring, step, now_ns)


@helper
def _take_blocks(arena: Arena, ring: Arena, step: Arena, now_ns: int) -> int:
    last = last_seqno_of_call(arena, ring)
    wanted = 0
    for number in range(step.shape[0]):
        if step[number, STATUS] == FITS:
            end = step[number, START] + step[number, TOKENS]
            wanted += blocks_wanted(arena, end, step[number, ROW])
    # Evicting and taking one block costs three events a page.
    most = max((last - arena[META_LAST_SEQNO]) // (3 * unit_pages(arena, True).shape[1]), 1)
    code = make_room(arena, ring, now_ns, True, min(wanted, most))
    for number in range(step.shape[0]):
        row = step[number, ROW]
        if step[number, STATUS] != FITS:
            continue
        lacking = blocks_wanted(arena, step[number, START] + step[number, TOKENS], row)
        for _ in range(lacking):
            full = arena[META_LAST_SEQNO] >= last or arena[META_FREE_BLOCKS] == 0
            if code != DONE or full:
                publish(arena, ring)
                return REFUSED if code != DONE else MORE
            index = holder_table(arena)[row, HOLDER_BLOCKS]
            block = reserve_unit(arena, ring, now_ns, True, row, index, _HISTORY)
            if block < 0:
                return REFUSED
            code |= emit_for_unit(arena, ring, now_ns, _PAGE_WRITING, True, block, 0)
        image = step[number, WRITE_IMAGE]
        if image != 0 and unit_is_in(arena, False, image, _RESERVED):
            code |= emit_for_unit(arena, ring, now_ns, _PAGE_WRITING, False, image, 0)
    if code != DONE:
        return REFUSED
    publish(arena, ring)
    return DONE

"""commit and abort: only a completed step seals, and only what is sealed can be found."""

from typing import Final

from .begin import open_unit
from .captures import (
    CAPTURE_IMAGE,
    CAPTURE_POSITION,
    CAPTURE_ROLLING,
    CAPTURE_ROW,
    CAPTURE_SUMS,
    CAPTURE_WORK,
)
from .commit_check import is_void
from .compile import compiled, helper
from .emit import emit_page
from .events import EventType
from .ring import publish
from .room import (
    DONE,
    MORE,
    REFUSED,
    RING_FULL,
    emit_for_unit,
    first_group,
    last_seqno_of_call,
    quarter_is_free,
    unit_is_in,
)
from .states import PageState
from .steps import (
    ACCEPTED,
    FITS,
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
    STEP_VOID,
    STEP_WRITTEN,
    STEP_WRITTEN_BEFORE,
    SWITCHED,
    TOKENS,
    WORK_INDEX,
    WORK_KEY_0,
    WORK_KEY_1,
    WORK_ROW,
    WORK_STEP,
    WORK_SUMS,
    WRITE_IMAGE,
)
from .views import (
    holder_blocks,
    holder_table,
    unit_pages,
    unit_rows,
)
from .words import (
    HOLDER_BLOCKS,
    HOLDER_IMAGES,
    HOLDER_KIND,
    HOLDER_NUM_IMAGES,
    HOLDER_SEALED,
    HOLDER_SEQUENCE,
    META_LAST_SEQNO,
    UNIT_CANONICAL,
    Arena,
)

__all__ = ["abort", "commit"]

# how far a commit that was cut has come
AT_SEQUENCE, AT_WORK, AT_CAPTURE, AT_SETTLED = range(4)
PROGRESS_WORDS: Final = 4

_PAGE_WRITING: Final = int(EventType.PAGE_WRITING)
_PAGE_SEALED: Final = int(EventType.PAGE_SEALED)
_RESERVED: Final = int(PageState.RESERVED)
_WRITING: Final = int(PageState.WRITING)


@compiled
def commit(
    arena: Arena,
    steps: Arena,
    ring: Arena,
    step: Arena,
    serial: int,
    last_serial: int,
    work: Arena,
    captures: Arena,
    progress: Arena,
    flags: int,
    now_ns: int,
) -> int:
    """Commit the oldest step in flight.

    Args:
        arena: the arena.
        steps: the step table.
        ring: the ring.
        step: the step, checked by :func:`check_commit`.
        serial: the step's number.
        last_serial: that of the last step reserved.
        work: int64[m, WORK_SUMS + history groups], blocks to seal: keys and checksums filled in.
        captures: int64[k, CAPTURE_SUMS + state groups], copied images with their checksums.
        progress: int64[PROGRESS_WORDS], zeros at the first call.
        flags: flags of the PAGE_SEALED events.
        now_ns: the call's time.

    Returns:
        DONE, MORE (call again with the same arguments), RING_FULL (nothing changed by this call)
        or REFUSED.

    Mutates:
        arena, steps, ring, progress.
    """
    last = last_seqno_of_call(arena, ring)
    room = quarter_is_free(ring, arena[META_LAST_SEQNO])
    if not room and (work.shape[0] > 0 or will_settle(steps, step)):
        return RING_FULL
    code = DONE
    while progress[AT_SEQUENCE] < step.shape[0] and code == DONE:
        number = progress[AT_SEQUENCE]
        this = step[number]
        if this[STATUS] == FITS:
            code = _seal_blocks(arena, ring, number, work, progress, flags, last, now_ns)
            if code == DONE:
                code = _keep_images(
                    arena, steps, ring, this, work, captures, progress, flags, now_ns
                )
            if code == DONE and progress[AT_SETTLED] == 0:
                _advance(arena, steps, this, serial, last_serial)
                progress[AT_SETTLED] = 1
            if code == DONE and steps[this[ROW], STEP_IN_FLIGHT] == 0:
                code = settle(arena, steps, ring, this[ROW], last, now_ns)
        if code == DONE:
            progress[AT_SEQUENCE] += 1
            progress[AT_SETTLED] = 0
    if code != REFUSED:
        publish(arena, ring)
    return code


@helper
def will_settle(steps: Arena, step: Arena) -> bool:
    """Whether ending a step will emit events although it seals nothing."""
    for number in range(step.shape[0]):
        row = step[number, ROW]
        ends = step[number, STATUS] == FITS and steps[row, STEP_IN_FLIGHT] <= 1
        if ends and steps[row, STEP_UNSETTLED] != 0:
            return True
    return False


@helper
def _seal_blocks(
    arena: Arena,
    ring: Arena,
    number: int,
    work: Arena,
    progress: Arena,
    flags: int,
    last: int,
    now_ns: int,
) -> int:
    while progress[AT_WORK] < work.shape[0] and work[progress[AT_WORK], WORK_STEP] == number:
        if arena[META_LAST_SEQNO] >= last:
            return MORE
        this = work[progress[AT_WORK]]
        row, index = this[WORK_ROW], this[WORK_INDEX]
        if index < holder_table(arena)[row, HOLDER_SEALED]:
            progress[AT_WORK] += 1
            continue
        block = holder_blocks(arena)[row, index]
        parent = parent_to_name(arena, row, index)
        key_0, key_1 = this[WORK_KEY_0], this[WORK_KEY_1]
        code = seal_unit(
            arena, ring, now_ns, True, block, key_0, key_1, this[WORK_SUMS:], parent, flags
        )
        if code != DONE:
            return REFUSED
        progress[AT_WORK] += 1
    return DONE


@helper
def parent_to_name(arena: Arena, row: int, index: int) -> int:
    """The block that a sequence's block ``index`` hangs from as the index knows it, or 0."""
    if index == 0:
        return 0
    parent = holder_blocks(arena)[row, index - 1]
    canonical = unit_rows(arena, True)[parent, UNIT_CANONICAL]
    return canonical if canonical != 0 else parent


@helper
def seal_unit(
    arena: Arena,
    ring: Arena,
    now_ns: int,
    is_block: bool,
    unit: int,
    key_0: int,
    key_1: int,
    sums: Arena,
    extra: int,
    flags: int,
) -> int:
    """SEALED for each page of a unit; ``extra`` is the parent block or the image's position."""
    parts = unit_pages(arena, is_block)
    first = first_group(arena, is_block)
    d = unit | extra << 32
    code = DONE
    for part in range(parts.shape[1]):
        slot = parts[unit, part]
        code |= emit_page(
            arena,
            ring,
            now_ns,
            _PAGE_SEALED,
            first + part,
            slot,
            flags << 8,
            key_0,
            key_1,
            sums[part],
            d,
        )
    return code


@helper
def _keep_images(
    arena: Arena,
    steps: Arena,
    ring: Arena,
    this: Arena,
    work: Arena,
    captures: Arena,
    progress: Arena,
    flags: int,
    now_ns: int,
) -> int:
    """Seal the checkpoints copied for one sequence, and note its rolling image."""
    code = DONE
    while progress[AT_CAPTURE] < captures.shape[0]:
        capture = captures[progress[AT_CAPTURE]]
        row, image, position = (
            capture[CAPTURE_ROW],
            capture[CAPTURE_IMAGE],
            capture[CAPTURE_POSITION],
        )
        if row != this[ROW]:
            break
        if capture[CAPTURE_ROLLING] != 0:
            steps[row, STEP_ROLLING] = image
            steps[row, STEP_ROLLING_POSITION] = position
            if unit_is_in(arena, False, image, _RESERVED):
                code |= emit_for_unit(arena, ring, now_ns, _PAGE_WRITING, False, image, 0)
                code |= open_unit(arena, ring, now_ns, False, image, position)
        else:
            source = work[capture[CAPTURE_WORK]]
            key_0, key_1 = source[WORK_KEY_0], source[WORK_KEY_1]
            sums = capture[CAPTURE_SUMS:]
            code |= seal_unit(
                arena, ring, now_ns, False, image, key_0, key_1, sums, position, flags
            )
        if code != DONE:
            return REFUSED
        progress[AT_CAPTURE] += 1
    return DONE


@helper
def fall_back(steps: Arena, row: int) -> None:
    """The step that switched the front image is gone: the committed image is the front again."""
    steps[row, STEP_FRONT] = steps[row, STEP_COMMITTED]
    steps[row, STEP_WRITTEN] = steps[row, STEP_WRITTEN_BEFORE]


@helper
def _advance(arena: Arena, steps: Arena, this: Arena, serial: int, last_serial: int) -> None:
    """One sequence's row of the oldest step has ended."""
    row = this[ROW]
    steps[row, STEP_IN_FLIGHT] -= 1
    if is_void(arena, steps, this, serial):
        return
    steps[row, STEP_POSITION] = this[START] + this[ACCEPTED]
    steps[row, STEP_PENDING] -= this[TOKENS]
    if this[SWITCHED] == 0:
        steps[row, STEP_IN_PLACE] -= this[TOKENS]
    elif this[ACCEPTED] > 0:
        steps[row, STEP_COMMITTED] = this[WRITE_IMAGE]
    else:
        fall_back(steps, row)
    if this[ACCEPTED] < this[TOKENS] and steps[row, STEP_IN_FLIGHT] > 0:
        steps[row, STEP_VOID] = last_serial
        steps[row, STEP_PENDING] = 0
        steps[row, STEP_IN_PLACE] = 0


@helper
def settle(arena: Arena, steps: Arena, ring: Arena, row: int, last: int, now_ns: int) -> int:
    """Nothing is in flight for a sequence: what is still WRITING becomes OPEN."""
    holders = holder_table(arena)
    if steps[row, STEP_UNSETTLED] == 0 or holders[row, HOLDER_KIND] != HOLDER_SEQUENCE:
        return DONE
    position = steps[row, STEP_POSITION]
    code = DONE
    for index in range(holders[row, HOLDER_SEALED], holders[row, HOLDER_BLOCKS]):
        block = holder_blocks(arena)[row, index]
        if unit_is_in(arena, True, block, _WRITING):
            if arena[META_LAST_SEQNO] >= last:
                return MORE
            code |= open_unit(arena, ring, now_ns, True, block, position)
    for place in range(holders[row, HOLDER_NUM_IMAGES]):
        image = holders[row, HOLDER_IMAGES + place]
        if unit_is_in(arena, False, image, _WRITING):
            code |= open_unit(arena, ring, now_ns, False, image, position)
    steps[row, STEP_UNSETTLED] = 0
    return DONE if code == DONE else REFUSED


@compiled
def abort(
    arena: Arena, steps: Arena, ring: Arena, step: Arena, serial: int, progress: Arena, now_ns: int
) -> int:
    """Abort the latest step in flight.

    Args:
        arena: the arena.
        steps: the step table.
        ring: the ring.
        step: the step.
        serial: its number.
        progress: int64[PROGRESS_WORDS], zeros at the first call.
        now_ns: the call's time.

    Returns:
        DONE, MORE (call again with the same arguments), RING_FULL (nothing changed by this call)
        or REFUSED.

    Mutates:
        arena, steps, ring, progress.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    last = last_seqno_of_call(arena, ring)
    code = DONE
    while progress[AT_SEQUENCE] < step.shape[0] and code == DONE:
        this = step[progress[AT_SEQUENCE]]
        row = this[ROW]
        if this[STATUS] == FITS:
            if progress[AT_SETTLED] == 0:
                steps[row, STEP_IN_FLIGHT] -= 1
                if not is_void(arena, steps, this, serial):
                    steps[row, STEP_PENDING] -= this[TOKENS]
                    if this[SWITCHED] == 0:
                        steps[row, STEP_IN_PLACE] -= this[TOKENS]
                    else:
                        fall_back(steps, row)
                progress[AT_SETTLED] = 1
            if steps[row, STEP_IN_FLIGHT] == 0:
                code = settle(arena, steps, ring, row, last, now_ns)
        if code == DONE:
            progress[AT_SEQUENCE] += 1
            progress[AT_SETTLED] = 0
    if code != REFUSED:
        publish(arena, ring)
    return code

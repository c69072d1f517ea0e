"""Captures: the images into which a commit's checkpoints are copied, taken before a byte moves."""

from typing import Final

from .apply import Role
from .compile import compiled, helper
from .events import EventType
from .index import find_unit
from .ring import publish
from .room import (
    DONE,
    REFUSED,
    RING_FULL,
    available,
    emit_for_unit,
    make_room,
    quarter_is_free,
    reserve_unit,
)
from .steps import (
    ROW,
    STEP_EVERY,
    STEP_EXACT,
    STEP_PROMPT_END,
    STEP_WRITTEN,
    WORK_INDEX,
    WORK_KEY_0,
    WORK_KEY_1,
    WORK_STEP,
    WRITE_IMAGE,
    is_wanted,
)
from .views import (
    holder_table,
)
from .words import (
    HOLDER_IMAGES,
    HOLDER_NUM_IMAGES,
    HOLDER_TAINTED,
    META_BLOCK_TOKENS,
    META_LAST_SEQNO,
    META_ROLLBACK,
    Arena,
)

__all__ = ["plan_captures"]

# one row an image to copy; checksums of its pages follow
(
    CAPTURE_ROW,
    CAPTURE_SOURCE,
    CAPTURE_IMAGE,
    CAPTURE_POSITION,
    CAPTURE_WORK,
    CAPTURE_ROLLING,
    CAPTURE_SUMS,
) = range(7)

_PAGE_WRITING: Final = int(EventType.PAGE_WRITING)
_CHECKPOINT: Final = int(Role.CHECKPOINT)


@compiled
def plan_captures(
    arena: Arena,
    steps: Arena,
    ring: Arena,
    step: Arena,
    work: Arena,
    captures: Arena,
    now_ns: int,
) -> int:
    """Reserve an image for each checkpoint a commit can take, and name the rolling images.

    Args:
        arena: the arena.
        steps: the step table.
        ring: the ring.
        step: the step about to be committed.
        work: int64[m, ...], the blocks it will seal, with their keys.
        captures: int64[>= 3 n, >= CAPTURE_SUMS], filled.
        now_ns: the call's time.

    Returns:
        Rows of ``captures`` filled; or RING_FULL (nothing changed) or REFUSED.

    Mutates:
        arena, ring, captures.
    """
    if not quarter_is_free(ring, arena[META_LAST_SEQNO]):
        return RING_FULL
    count = 0
    for place in range(work.shape[0]):
        this = step[work[place, WORK_STEP]]
        if this[WRITE_IMAGE] == 0:
            continue
        row = this[ROW]
        position = (work[place, WORK_INDEX] + 1) * arena[META_BLOCK_TOKENS]
        # Older rows than the ring's slack below what was ever written are gone.
        if steps[row, STEP_WRITTEN] - position > arena[META_ROLLBACK]:
            continue
        if position < steps[row, STEP_EXACT] or holder_table(arena)[row, HOLDER_TAINTED] != 0:
            continue
        image = 0
        rolling = 0
        every = steps[row, STEP_EVERY]
        if position > steps[row, STEP_PROMPT_END] and (every == 0 or position % every != 0):
            last = (
                place + 1 == work.shape[0] or work[place + 1, WORK_STEP] != work[place, WORK_STEP]
            )
            if last:
                rolling = 1
                image = first_image_besides(arena, row, this[WRITE_IMAGE])
        elif is_wanted(steps, row, position) and not _is_taken(work, captures, count, place):
            image = _take_checkpoint(arena, ring, now_ns, row, position, work[place])
        if image < 0:
            return REFUSED
        if image > 0:
            captures[count, CAPTURE_ROW] = row
            captures[count, CAPTURE_SOURCE] = this[WRITE_IMAGE]
            captures[count, CAPTURE_IMAGE] = image
            captures[count, CAPTURE_POSITION] = position
            captures[count, CAPTURE_WORK] = place
            captures[count, CAPTURE_ROLLING] = rolling
            count += 1
    publish(arena, ring)
    return count


@helper
def first_image_besides(arena: Arena, row: int, image: int) -> int:
    """The first private image of a sequence other than ``image``, or 0."""
    holders = holder_table(arena)
    for place in range(holders[row, HOLDER_NUM_IMAGES]):
        other = holders[row, HOLDER_IMAGES + place]
        if other != image:
            return other
    return 0


@helper
def _is_taken(work: Arena, captures: Arena, count: int, place: int) -> bool:
    """Whether another sequence of this commit takes the checkpoint of the same prefix."""
    for other in range(count):
        source = captures[other, CAPTURE_WORK]
        if (
            captures[other, CAPTURE_ROLLING] == 0
            and work[source, WORK_KEY_0] == work[place, WORK_KEY_0]
            and work[source, WORK_KEY_1] == work[place, WORK_KEY_1]
        ):
            return True
    return False


@helper
def _take_checkpoint(
    arena: Arena, ring: Arena, now_ns: int, row: int, position: int, work: Arena
) -> int:
    """An image for a checkpoint: 0 where none is needed or to be had, negative where refused."""
    if (
        find_unit(arena, False, work[WORK_KEY_0], work[WORK_KEY_1]) != 0
        or available(arena, False) == 0
    ):
        return 0
    if make_room(arena, ring, now_ns, False, 1) != DONE:
        return -1
    image = reserve_unit(arena, ring, now_ns, False, row, position, _CHECKPOINT)
    if image > 0 and emit_for_unit(arena, ring, now_ns, _PAGE_WRITING, False, image, 0) != DONE:
        return -1
    return image

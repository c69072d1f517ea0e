"""Before a commit: what it would seal, and whether what it is given fits the step. Pure."""

from .compile import compiled, helper
from .steps import (
    ACCEPTED,
    FITS,
    ROW,
    START,
    STATUS,
    STEP_VOID,
    STEP_WRITTEN,
    SWITCHED,
    TOKENS,
    WORK_INDEX,
    WORK_KEY_0,
    WORK_KEY_1,
    WORK_ROW,
    WORK_STEP,
    is_wanted,
)
from .views import (
    holder_table,
)
from .words import (
    HOLDER_KIND,
    HOLDER_SEALED,
    HOLDER_SEQUENCE,
    META_BLOCK_TOKENS,
    META_ROLLBACK,
    Arena,
)

__all__ = ["check_commit", "complaint_about", "is_void"]

NOT_ACCEPTABLE, IDS_MISSING, IDS_DIFFER = range(3)
"""Complaints of :func:`check_commit`."""


@helper
def is_void(arena: Arena, steps: Arena, this: Arena, serial: int) -> bool:
    """Whether a row of a step commits as nothing: its base was rolled back, or it was cancelled."""
    row = this[ROW]
    if steps[row, STEP_VOID] >= serial:
        return True
    return holder_table(arena)[row, HOLDER_KIND] != HOLDER_SEQUENCE


@compiled
def check_commit(
    arena: Arena,
    steps: Arena,
    step: Arena,
    serial: int,
    num_ids: int,
    prompts: Arena,
    keys: Arena,
    work: Arena,
) -> int:
    """Which blocks a commit will seal; void rows get ACCEPTED 0.

    Args:
        arena: the arena.
        steps: the step table.
        step: int64[n, STEP_ROW_WORDS] with ACCEPTED filled in.
        serial: the step's number.
        num_ids: token ids given with the commit.
        prompts: int64[1 + sequences], lengths of the prompts by row.
        keys: int64[1 + sequences, blocks, 2], keys of the prompts' whole blocks by row.
        work: int64[m, >= WORK_SUMS], filled with row, block index, place in the step and key, as
            far as it has room; zeros for the key of a block that is not in the prompt.

    Returns:
        Blocks to seal, and sealed ones at whose end a checkpoint is wanted; or a negative number
        whose :func:`complaint_about` says what is wrong.

    Mutates:
        step, work.
    """
    tokens = arena[META_BLOCK_TOKENS]
    count = 0
    num_tokens = 0
    for number in range(step.shape[0]):
        this = step[number]
        if this[STATUS] != FITS:
            this[ACCEPTED] = 0
            continue
        row = this[ROW]
        num_tokens += this[TOKENS]
        if this[ACCEPTED] < 0 or this[ACCEPTED] > this[TOKENS]:
            return -1 - (number << 2 | NOT_ACCEPTABLE)
        if is_void(arena, steps, this, serial):
            this[ACCEPTED] = 0
        end = this[START] + this[ACCEPTED]
        lost = end < steps[row, STEP_WRITTEN] - arena[META_ROLLBACK]
        if this[SWITCHED] != 0 and this[ACCEPTED] != 0 and lost:
            return -1 - (number << 2 | NOT_ACCEPTABLE)
        if num_ids == 0 and this[ACCEPTED] > 0 and end > prompts[row]:
            return -1 - (number << 2 | IDS_MISSING)
        # Where a window is replayed, blocks before and after START are sealed already: of those
        # only a checkpoint may be wanted. Elsewhere the next to seal is the one START lies in.
        sealed = holder_table(arena)[row, HOLDER_SEALED]
        index = min(this[START] // tokens, sealed)
        while this[ACCEPTED] > 0 and (index + 1) * tokens <= end:
            if index >= sealed or is_wanted(steps, row, (index + 1) * tokens):
                if count < work.shape[0]:
                    work[count, WORK_ROW] = row
                    work[count, WORK_INDEX] = index
                    work[count, WORK_STEP] = number
                    in_prompt = (index + 1) * tokens <= prompts[row]
                    work[count, WORK_KEY_0] = keys[row, index, 0] if in_prompt else 0
                    work[count, WORK_KEY_1] = keys[row, index, 1] if in_prompt else 0
                count += 1
            index += 1
    if num_ids != 0 and num_ids != num_tokens:
        return -1 - (num_tokens << 2 | IDS_DIFFER)
    return count


def complaint_about(code: int) -> tuple[int, int]:
    """What :func:`check_commit` found wrong.

    Returns:
        NOT_ACCEPTABLE or IDS_MISSING with the place of the sequence in the step, or IDS_DIFFER
        with the number of ids expected.
    """
    return (-1 - code) & 3, (-1 - code) >> 2

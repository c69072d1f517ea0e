"""The step table: what is true between block boundaries, and which image a step writes.

It stands outside the log: positions since the last boundary, tokens in flight, the front image.
Never logged, digested or snapshotted; a crash discards it.
"""

from typing import Final

import numpy as np

from .compile import helper
from .views import (
    holder_table,
)
from .words import (
    HOLDER_IMAGES,
    HOLDER_NUM_IMAGES,
    META_NUM_SEQUENCES,
    META_ROLLBACK,
    Arena,
)

__all__ = ["new_step_table"]

# one row a sequence
(
    STEP_POSITION,
    STEP_PENDING,
    STEP_IN_PLACE,
    STEP_IN_FLIGHT,
    STEP_COMMITTED,
    STEP_FRONT,
    STEP_ROLLING,
    STEP_ROLLING_POSITION,
    STEP_VOID,
    STEP_EVERY,
    STEP_EXACT,
    STEP_PROMPT_END,
    STEP_UNSETTLED,
    STEP_WRITTEN,
    STEP_WRITTEN_BEFORE,
    STEP_CAPTURES,
) = range(16)
NUM_CAPTURES: Final = 8
STEP_WORDS: Final = STEP_CAPTURES + NUM_CAPTURES
"""CAPTURES: positions at which a checkpoint is wanted, 0 for none; the plan's stand first, those
that other requests wait for last. EVERY: distance of the checkpoints wanted besides, or 0. EXACT:
below it state was computed from nothing and is not to be kept. WRITTEN: how far the front image's
ring has ever been written, aborted and void steps included; BEFORE: the same of the committed image
while a switched step is in flight."""

# one row a sequence of a step
ROW, ID, START, TOKENS, SWITCHED, STATUS, ACCEPTED, READ_IMAGE, WRITE_IMAGE = range(9)
STEP_ROW_WORDS: Final = 9

# work of a commit: one row a block to seal; checksums of its pages follow
WORK_ROW, WORK_INDEX, WORK_STEP, WORK_KEY_0, WORK_KEY_1, WORK_SUMS = range(6)

FITS, LONG, BUSY, PAGES = range(4)
"""Status of a sequence in a step: it fits, is too long, cannot be rolled back, finds no pages."""


def new_step_table(arena: Arena) -> Arena:
    """An empty step table for an arena: int64[1 + sequences, STEP_WORDS]."""
    table: Arena = np.zeros((1 + int(arena[META_NUM_SEQUENCES]), STEP_WORDS), dtype=np.int64)
    return table


@helper
def is_wanted(steps: Arena, row: int, position: int) -> bool:
    """Whether a checkpoint is wanted at a block boundary."""
    every = steps[row, STEP_EVERY]
    if every > 0 and position % every == 0:
        return True
    wanted = False
    for place in range(NUM_CAPTURES):
        wanted |= steps[row, STEP_CAPTURES + place] == position
    return wanted


@helper
def other_image(arena: Arena, steps: Arena, row: int, besides: int) -> int:
    """A private image that is neither the committed one nor ``besides`` nor rolling, if possible.

    Returns:
        The first such image in order; else the rolling one; else 0.
    """
    holder = holder_table(arena)[row]
    rolling = 0
    for place in range(holder[HOLDER_NUM_IMAGES]):
        image = holder[HOLDER_IMAGES + place]
        if image == steps[row, STEP_COMMITTED] or image == besides:
            continue
        if image == steps[row, STEP_ROLLING]:
            rolling = image
        else:
            return image
    return rolling


@helper
def fits_in_place(arena: Arena, steps: Arena, row: int, num_tokens: int) -> bool:
    """Whether a step can be written in place: the ring's slack covers all that may roll back."""
    return steps[row, STEP_IN_PLACE] + num_tokens <= arena[META_ROLLBACK]

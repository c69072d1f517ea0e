"""The common step: every sequence decodes inside its block, nothing is sealed, nothing logged."""

import numpy as np
import numpy.typing as npt

from .commit_check import is_void
from .compile import compiled
from .steps import (
    ACCEPTED,
    FITS,
    ROW,
    START,
    STATUS,
    STEP_IN_FLIGHT,
    STEP_IN_PLACE,
    STEP_PENDING,
    STEP_POSITION,
    STEP_UNSETTLED,
    SWITCHED,
    TOKENS,
)
from .views import holder_table
from .words import HOLDER_SEALED, META_BLOCK_TOKENS, Arena

__all__ = ["commit_quietly"]

Tokens = npt.NDArray[np.int32]


@compiled
def commit_quietly(
    arena: Arena,
    steps: Arena,
    step: Arena,
    serial: int,
    tokens: Tokens,
    prompts: Arena,
    open_tokens: Tokens,
) -> bool:
    """Commit a step that keeps all its tokens and emits no event.

    Args:
        arena: the arena; read only.
        steps: the step table.
        step: the step; all its tokens are accepted.
        serial: the step's number.
        tokens: int32[sum of tokens], past every prompt.
        prompts: int64[1 + sequences], lengths of the prompts by row.
        open_tokens: int32[1 + sequences, block tokens], by place in the open block.

    Returns:
        True where it was committed; False, and nothing changed, where the step needs
        :func:`.commit.commit`.

    Mutates:
        steps, step, open_tokens.
    """
    holders = holder_table(arena)
    block_tokens = arena[META_BLOCK_TOKENS]
    count = 0
    for number in range(step.shape[0]):
        this = step[number]
        row = this[ROW]
        if this[STATUS] != FITS or this[SWITCHED] != 0:
            return False
        end = this[START] + this[TOKENS]
        if end >= (holders[row, HOLDER_SEALED] + 1) * block_tokens or this[START] < prompts[row]:
            return False
        if is_void(arena, steps, this, serial):
            return False
        if steps[row, STEP_UNSETTLED] != 0 and steps[row, STEP_IN_FLIGHT] <= 1:
            return False
        count += this[TOKENS]
    if count != tokens.shape[0]:
        return False
    at = 0
    for number in range(step.shape[0]):
        this = step[number]
        row = this[ROW]
        place = this[START] - holders[row, HOLDER_SEALED] * block_tokens
        for offset in range(this[TOKENS]):
            open_tokens[row, place + offset] = tokens[at + offset]
        at += this[TOKENS]
        this[ACCEPTED] = this[TOKENS]
        steps[row, STEP_POSITION] += this[TOKENS]
        steps[row, STEP_PENDING] -= this[TOKENS]
        steps[row, STEP_IN_PLACE] -= this[TOKENS]
        steps[row, STEP_IN_FLIGHT] -= 1
    return True

"""Tokens of the block each sequence is filling: what the key of an output block is made of."""

import numpy as np
import numpy.typing as npt

from .compile import compiled
from .sha256 import HEAD, call_by_address, context_of, end_block, start_block
from .steps import (
    ACCEPTED,
    FITS,
    ROW,
    START,
    STATUS,
    TOKENS,
    WORK_INDEX,
    WORK_KEY_0,
    WORK_KEY_1,
    WORK_ROW,
    WORK_STEP,
)
from .views import holder_blocks, holder_table, unit_rows
from .words import (
    HOLDER_SEALED,
    HOLDER_SEED_0,
    HOLDER_SEED_1,
    META_BLOCK_TOKENS,
    UNIT_KEY_0,
    UNIT_KEY_1,
    Arena,
)

__all__ = ["hash_outputs", "keep_tokens"]

Tokens = npt.NDArray[np.int32]


@compiled
def keep_tokens(
    arena: Arena, step: Arena, tokens: Tokens, prompts: Arena, open_tokens: Tokens
) -> None:
    """Remember the committed tokens of the blocks still open, as far as they follow the prompts.

    Args:
        arena: the arena, after the commit.
        step: int64[n, STEP_ROW_WORDS], the committed step.
        tokens: int32[sum of tokens].
        prompts: int64[1 + sequences], lengths of the prompts by row.
        open_tokens: int32[1 + sequences, block tokens], by place in the open block.

    Mutates:
        open_tokens.
    """
    holders = holder_table(arena)
    at = 0
    for number in range(step.shape[0]):
        this = step[number]
        if this[STATUS] != FITS:
            continue
        row, start = this[ROW], this[START]
        begin = holders[row, HOLDER_SEALED] * arena[META_BLOCK_TOKENS]
        first = max(start, begin, prompts[row])
        for position in range(first, start + this[ACCEPTED]):
            open_tokens[row, position - begin] = tokens[at + position - start]
        at += this[TOKENS]


@compiled
def hash_outputs(
    functions: Arena,
    arena: Arena,
    step: Arena,
    tokens: Tokens,
    open_tokens: Tokens,
    work: Arena,
    scratch: Arena,
) -> int:
    """Fill in the keys of the blocks a commit seals that no prompt covers; they have no extras.

    Args:
        functions: int64[3], see :func:`.sha256.openssl_functions`.
        arena: the arena.
        step: the step.
        tokens: int32[sum of tokens].
        open_tokens: int32[1 + sequences, block tokens], by place in the open block.
        work: int64[m, ...] of :func:`.commit_check.check_commit`.
        scratch: see :func:`.sha256.scratch`.

    Returns:
        0.

    Mutates:
        work, scratch.
    """
    block_tokens = arena[META_BLOCK_TOKENS]
    at = 0
    number = 0
    for place in range(work.shape[0]):
        while number < work[place, WORK_STEP]:
            at += step[number, TOKENS] if step[number, STATUS] == FITS else 0
            number += 1
        if work[place, WORK_KEY_0] != 0 or work[place, WORK_KEY_1] != 0:
            continue
        row, index = work[place, WORK_ROW], work[place, WORK_INDEX]
        earlier = work[place - 1]
        if place > 0 and earlier[WORK_ROW] == row and earlier[WORK_INDEX] == index - 1:
            scratch[HEAD], scratch[HEAD + 1] = earlier[WORK_KEY_0], earlier[WORK_KEY_1]
        elif index == 0:
            scratch[HEAD] = holder_table(arena)[row, HOLDER_SEED_0]
            scratch[HEAD + 1] = holder_table(arena)[row, HOLDER_SEED_1]
        else:
            parent = unit_rows(arena, True)[holder_blocks(arena)[row, index - 1]]
            scratch[HEAD], scratch[HEAD + 1] = parent[UNIT_KEY_0], parent[UNIT_KEY_1]
        # What the block held before this step, then what the step adds to it.
        start = step[number, START] - index * block_tokens
        before = max(start, 0)
        added = tokens.ctypes.data + (at - min(start, 0)) * 4
        kept = open_tokens.ctypes.data + row * block_tokens * 4
        start_block(functions, scratch, block_tokens)
        call_by_address(functions[1], context_of(scratch), kept, before * 4)
        call_by_address(functions[1], context_of(scratch), added, (block_tokens - before) * 4)
        end_block(functions, scratch, added, 0)
        work[place, WORK_KEY_0], work[place, WORK_KEY_1] = scratch[HEAD], scratch[HEAD + 1]
    return 0

"""A whole commit in one call, for managers whose pages' bytes are somebody else's.

Where the manager has pools, bytes are checksummed and copied between the parts of a commit; where
it has none, nothing comes between them.
"""

import numpy as np
import numpy.typing as npt

from .captures import plan_captures
from .commit import commit
from .commit_check import check_commit
from .compile import compiled, helper
from .quiet import commit_quietly
from .room import DONE, MORE, RING_FULL
from .steps import ACCEPTED, TOKENS
from .tokens import hash_outputs, keep_tokens
from .words import Arena

__all__ = ["NOT_AT_ONCE", "commit_at_once"]

NOT_AT_ONCE = -64
"""Nothing was changed: the step is to be committed part by part."""

Tokens = npt.NDArray[np.int32]


@compiled
def commit_at_once(
    arena: Arena,
    steps: Arena,
    ring: Arena,
    step: Arena,
    numbers: Arena,
    tokens: Tokens,
    prompts: Arena,
    keys: Arena,
    open_tokens: Tokens,
    functions: Arena,
    scratch: Arena,
    work: Arena,
    captures: Arena,
    progress: Arena,
    flags: int,
    now_ns: int,
) -> int:
    """Commit a step of which all tokens are accepted, nothing of it having bytes.

    Args:
        arena: the arena.
        steps: the step table.
        ring: the ring.
        step: the step.
        numbers: int64[4], the step's number and that of the last step reserved; filled with rows
            of ``work`` and of ``captures``.
        tokens: int32[sum of tokens], or none of them inside prompts.
        prompts: int64[1 + sequences], lengths of the prompts by row.
        keys: int64[1 + sequences, blocks, 2], keys of the prompts' whole blocks by row.
        open_tokens: int32[1 + sequences, block tokens], by place in the open block.
        functions: int64[3], see :func:`.sha256.openssl_functions`.
        scratch: see :func:`.sha256.scratch`.
        work: int64[m, ...], scratch.
        captures: int64[m, ...], scratch.
        progress: int64[PROGRESS_WORDS], zeroed here.
        flags: flags of the PAGE_SEALED events.
        now_ns: the call's time.

    Returns:
        DONE, RING_FULL or NOT_AT_ONCE (nothing changed), MORE (go on with :func:`.commit.commit`)
        or REFUSED.

    Mutates:
        arena, steps, ring, step, numbers, open_tokens, scratch, work, captures, progress.
    """
    if tokens.shape[0] > 0 and commit_quietly(
        arena, steps, step, numbers[0], tokens, prompts, open_tokens
    ):
        return DONE
    count = _seals(
        arena, steps, step, numbers[0], tokens, prompts, keys, open_tokens, functions, scratch, work
    )
    if count < 0:
        return count
    taken = 0
    if count > 0:
        taken = plan_captures(arena, steps, ring, step, work[:count], captures, now_ns)
        if taken < 0:
            return taken
    numbers[2], numbers[3] = count, taken
    progress[:] = 0
    seals, images, last = work[:count], captures[:taken], numbers[1]
    code = commit(
        arena, steps, ring, step, numbers[0], last, seals, images, progress, flags, now_ns
    )  # fmt: skip
    if code == RING_FULL:
        return MORE  # the images are taken already
    if code == DONE and tokens.shape[0] > 0:
        keep_tokens(arena, step, tokens, prompts, open_tokens)
    return code


@helper
def _seals(
    arena: Arena,
    steps: Arena,
    step: Arena,
    serial: int,
    tokens: Tokens,
    prompts: Arena,
    keys: Arena,
    open_tokens: Tokens,
    functions: Arena,
    scratch: Arena,
    work: Arena,
) -> int:
    """Fill ``work`` with the blocks that a wholly accepted step seals: how many, or NOT_AT_ONCE."""
    for number in range(step.shape[0]):
        step[number, ACCEPTED] = step[number, TOKENS]
    num_ids = tokens.shape[0]
    count = check_commit(arena, steps, step, serial, num_ids, prompts, keys, work)
    if count < 0 or count > work.shape[0]:
        return NOT_AT_ONCE
    if num_ids > 0:
        hash_outputs(functions, arena, step, tokens, open_tokens, work[:count], scratch)
    return count

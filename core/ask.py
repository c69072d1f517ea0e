"""A plan as the core is asked for it, and whether the pages that it names are still so."""

from typing import Final

from .compile import compiled, helper
from .events import ResumeSource
from .planner import (
    PLAN_CAPTURES,
    PLAN_CHOSEN,
    PLAN_IMAGE,
    PLAN_IMAGE_GENERATION,
    PLAN_NUM_CAPTURES,
    PLAN_PARTIAL,
    PLAN_PARTIAL_GENERATION,
    PLAN_PARTIAL_KEY_0,
    PLAN_PARTIAL_KEY_1,
    PLAN_WAYS,
    WAY_BLOCKS,
    WAY_RESUME,
    WAY_SOURCE,
    WAY_WORDS,
)
from .prefetch import AHEAD, prefetch_unit
from .views import unit_rows
from .words import (
    META_NUM_BLOCKS,
    META_NUM_IMAGES,
    UNIT_GENERATION,
    UNIT_INDEXED,
    UNIT_KEY_0,
    UNIT_KEY_1,
    UNIT_REFS,
    UNIT_STATE,
    Arena,
)

__all__ = ["count_idle", "idle_blocks_of", "plan_is_fresh", "write_ask"]

# the request, as begin and grant read it
(
    ASK_PROMPT_TOKENS,
    ASK_NUM_BLOCKS,
    ASK_KEY_0,
    ASK_KEY_1,
    ASK_SEED_0,
    ASK_SEED_1,
    ASK_CHECKPOINT,
    ASK_CHECKPOINT_GENERATION,
    ASK_PARTIAL,
    ASK_PARTIAL_GENERATION,
    ASK_POSITION,
    ASK_EXACT,
    ASK_EVERY,
    ASK_CAPTURE_0,
    ASK_CAPTURE_1,
    ASK_CAPTURE_2,
    ASK_OWNER,
    ASK_RESUMED_B,
    ASK_RESUMED_C,
    ASK_RESUMED_D,
) = range(20)
ASK_WORDS: Final = 20
"""KEY: of the partial block where there is one, else of the last block. RESUMED: words of
REQUEST_RESUMED as they are to stand in it."""

_COLD: Final = int(ResumeSource.COLD)
_ON_CHECKPOINT: Final = int(ResumeSource.CHECKPOINT)
_REPLAY: Final = int(ResumeSource.REPLAY)
_SUSPENDED: Final = int(ResumeSource.SUSPENDED)


@compiled
def write_ask(
    words: Arena,
    keys: Arena,
    blocks: Arena,
    num_tokens: int,
    block_tokens: int,
    seed_0: int,
    seed_1: int,
    every: int,
    computed: int,
    loaded: int,
    has_state: bool,
    plan: Arena,
    ask: Arena,
) -> None:
    """A plan as begin and grant read it.

    Args:
        words: int64[PLAN_WORDS], the plan.
        keys: int64[n, 2], keys of the prompt's whole blocks.
        blocks: int64[m, 2], ids and generations of the blocks to pin.
        num_tokens: length of the prompt.
        block_tokens: tokens of a block.
        seed_0: of the chain of keys.
        seed_1: of the chain of keys.
        every: tokens between checkpoints taken besides those that the plan wants, 0 for none.
        computed: tokens that the request had computed itself, before it was suspended.
        loaded: tokens below its resume point that a lower tier gave for this request.
        has_state: whether the plan's checkpoint and partial block are asked for.
        plan: int64[m, 4], filled with block ids, their generations and keys.
        ask: int64[ASK_WORDS], filled.

    Mutates:
        plan, ask.
    """
    num_blocks = blocks.shape[0]
    for index in range(num_blocks):
        plan[index, 0], plan[index, 1] = blocks[index, 0], blocks[index, 1]
        plan[index, 2], plan[index, 3] = keys[index, 0], keys[index, 1]
    ask[:] = 0
    ask[ASK_PROMPT_TOKENS] = num_tokens
    ask[ASK_NUM_BLOCKS] = num_blocks
    if num_blocks > 0:
        ask[ASK_KEY_0], ask[ASK_KEY_1] = keys[num_blocks - 1, 0], keys[num_blocks - 1, 1]
    ask[ASK_SEED_0], ask[ASK_SEED_1] = seed_0, seed_1
    way = PLAN_WAYS + words[PLAN_CHOSEN] * WAY_WORDS
    source, resume_at = words[way + WAY_SOURCE], words[way + WAY_RESUME]
    if has_state and source in (_ON_CHECKPOINT, _SUSPENDED):
        ask[ASK_CHECKPOINT] = words[PLAN_IMAGE]
        ask[ASK_CHECKPOINT_GENERATION] = words[PLAN_IMAGE_GENERATION]
    if has_state and words[PLAN_PARTIAL] != 0:
        ask[ASK_PARTIAL] = words[PLAN_PARTIAL]
        ask[ASK_PARTIAL_GENERATION] = words[PLAN_PARTIAL_GENERATION]
        ask[ASK_KEY_0], ask[ASK_KEY_1] = words[PLAN_PARTIAL_KEY_0], words[PLAN_PARTIAL_KEY_1]
    reused = resume_at if source == _SUSPENDED else words[way + WAY_BLOCKS] * block_tokens
    ask[ASK_POSITION] = resume_at
    ask[ASK_EXACT] = reused if source == _REPLAY else 0
    ask[ASK_EVERY] = every
    for place in range(min(words[PLAN_NUM_CAPTURES], ASK_OWNER - ASK_CAPTURE_0)):
        ask[ASK_CAPTURE_0 + place] = words[PLAN_CAPTURES + place]
    ask[ASK_RESUMED_B] = resume_at | reused << 32
    ask[ASK_RESUMED_C] = loaded | num_tokens << 32
    logged = source if source <= _SUSPENDED else _COLD
    ask[ASK_RESUMED_D] = min(computed, resume_at) | logged << 32


@helper
def plan_is_fresh(arena: Arena, plan: Arena, ask: Arena) -> bool:
    """Whether every block of a plan, and its checkpoint, is still what the plan saw.

    Args:
        arena: the arena.
        plan: int64[n, 4], block ids, their generations and keys, from the root.
        ask: the request.
    """
    rows = unit_rows(arena, True)
    for index in range(ask[ASK_NUM_BLOCKS]):
        block = plan[index, 0]
        if index + AHEAD < ask[ASK_NUM_BLOCKS]:
            prefetch_unit(arena, True, plan[index + AHEAD, 0])
        if block <= 0 or block > arena[META_NUM_BLOCKS]:
            return False
        if rows[block, UNIT_STATE] != UNIT_INDEXED:
            return False
        if rows[block, UNIT_GENERATION] != plan[index, 1]:
            return False
        if rows[block, UNIT_KEY_0] != plan[index, 2] or rows[block, UNIT_KEY_1] != plan[index, 3]:
            return False
    partial, generation = ask[ASK_PARTIAL], ask[ASK_PARTIAL_GENERATION]
    if partial != 0 and not _is_unchanged(arena, True, partial, generation, ask):
        return False
    checkpoint, generation = ask[ASK_CHECKPOINT], ask[ASK_CHECKPOINT_GENERATION]
    return checkpoint == 0 or _is_unchanged(arena, False, checkpoint, generation, ask)


@helper
def _is_unchanged(arena: Arena, is_block: bool, unit: int, generation: int, ask: Arena) -> bool:
    """Whether a unit is still the one indexed under the key asked for."""
    if unit < 0 or unit > arena[META_NUM_BLOCKS if is_block else META_NUM_IMAGES]:
        return False
    this = unit_rows(arena, is_block)[unit]
    return (
        this[UNIT_STATE] == UNIT_INDEXED
        and this[UNIT_GENERATION] == generation
        and this[UNIT_KEY_0] == ask[ASK_KEY_0]
        and this[UNIT_KEY_1] == ask[ASK_KEY_1]
    )


@helper
def idle_blocks_of(arena: Arena, plan: Arena, ask: Arena) -> int:
    """Blocks that a plan would take off the idle list."""
    rows = unit_rows(arena, True)
    count = 0
    for index in range(ask[ASK_NUM_BLOCKS]):
        if rows[plan[index, 0], UNIT_REFS] == 0:
            count += 1
    if ask[ASK_PARTIAL] != 0 and rows[ask[ASK_PARTIAL], UNIT_REFS] == 0:
        count += 1
    return count


@compiled
def count_idle(arena: Arena, blocks: Arena) -> int:
    """Blocks of int64[n, ...], ids first, that nobody pins now."""
    rows = unit_rows(arena, True)
    count = 0
    for index in range(blocks.shape[0]):
        count += rows[blocks[index, 0], UNIT_REFS] == 0
    return count

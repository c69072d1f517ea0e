"""A plan as the core reads it, and the objects that it names."""

from typing import Final

import numpy as np
import numpy.typing as npt

from kvstrata.core import begin as core_begin
from kvstrata.core.errors import StaleLease
from kvstrata.core.events import ResumeSource
from kvstrata.core.keys import key_words
from kvstrata.core.layout import CacheLayout
from kvstrata.core.room import STALE
from kvstrata.core.words import Arena

from .requests import Load, Plan

__all__ = ["ask_of", "check_fresh", "keys_of"]

_SOURCES: Final = {source.name.lower(): int(source) for source in ResumeSource}


def keys_of(
    keys: npt.NDArray[np.int64], load: Load, block_tokens: int
) -> list[tuple[int, int, bool]]:
    """The objects of a load by key, and whether each is a checkpoint: blocks first.

    Args:
        keys: int64[n, 2], of the prompt's blocks.
        load: what is to be loaded.
        block_tokens: tokens of a block.
    """
    blocks = keys[load.first : load.first + load.num_blocks].tolist()
    found = [(first, second, False) for first, second in blocks]
    if load.checkpoint_at:
        first, second = keys[load.checkpoint_at // block_tokens - 1].tolist()
        found.append((first, second, True))
    return found


def check_fresh(layout: CacheLayout, arena: Arena, plan: Plan) -> None:
    """Check that a plan still speaks of the pages it was made for.

    Raises:
        StaleLease: they changed since.
    """
    if core_begin.why_not(arena, *ask_of(layout, plan)) == STALE:
        raise StaleLease("the plan's pages changed since it was made; match again")


def ask_of(layout: CacheLayout, plan: Plan, every: int = 0, loaded: int = 0) -> tuple[Arena, Arena]:
    """A plan as the core reads it.

    Args:
        layout: the layout.
        plan: the plan.
        every: tokens between checkpoints taken besides those it wants, 0 for none.
        loaded: tokens below its resume point that a lower tier gave for this request, and that it
            had not computed itself before.

    Returns:
        int64[n, 4] block ids with generations and keys, and int64[ASK_WORDS], in the order of
        :mod:`kvstrata.core.begin`.
    """
    num_blocks = len(plan.blocks)
    key = (0, 0)
    if plan.partial[0]:
        key = plan.partial_key
    elif num_blocks:
        first, second = plan.keys[num_blocks - 1].tolist()
        key = first, second
    captures = (*plan.captures, 0, 0, 0)[: core_begin.ASK_OWNER - core_begin.ASK_CAPTURE_0]
    words = (
        plan.prompt_tokens,
        num_blocks,
        *key,
        *key_words(plan.request.seed(layout.block_tokens)),
        *plan.checkpoint,
        *plan.partial,
        plan.resume_at,
        plan.reused_tokens if plan.source == "replay" else 0,
        every,
        *captures,
        0,  # the owner, of a lease
        plan.resume_at | plan.reused_tokens << 32,
        loaded | plan.prompt_tokens << 32,
        min(plan.request.computed, plan.resume_at) | _SOURCES.get(plan.source, 0) << 32,
    )
    ask: Arena = np.array(words, dtype=np.int64)
    rows: Arena = np.empty((num_blocks, 4), dtype=np.int64)
    if num_blocks:
        rows[:, :2], rows[:, 2:] = plan.blocks, plan.keys[:num_blocks]
    return rows, ask

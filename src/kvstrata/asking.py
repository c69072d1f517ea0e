"""A plan as the core reads it, and the objects that it names."""

import numpy as np
import numpy.typing as npt

from kvstrata.core.ask import ASK_WORDS, write_ask
from kvstrata.core.begin import why_not
from kvstrata.core.errors import StaleLease
from kvstrata.core.keys import key_words
from kvstrata.core.layout import CacheLayout
from kvstrata.core.room import STALE
from kvstrata.core.words import Arena

from .requests import Load, Plan

__all__ = ["ask_of", "check_fresh", "keys_of"]


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
    if why_not(arena, *ask_of(layout, plan)) == STALE:
        raise StaleLease("the plan's pages changed since it was made; match again")


def ask_of(
    layout: CacheLayout, plan: Plan, every: int = 0, loaded: int = 0, load: Load | None = None
) -> tuple[Arena, Arena]:
    """A plan as the core reads it.

    Args:
        layout: the layout.
        plan: the plan.
        every: tokens between checkpoints taken besides those it wants, 0 for none.
        loaded: tokens below its resume point that a lower tier gave for this request, and that it
            had not computed itself before.
        load: a load of the plan's, which pins what is here before it, and no state.

    Returns:
        int64[n, 4] block ids with generations and keys, and int64[ASK_WORDS], in the order of
        :mod:`kvstrata.core.ask`.
    """
    request, tokens = plan.request, layout.block_tokens
    blocks = plan.blocks if load is None else plan.blocks[: load.first]
    rows: Arena = np.empty((len(blocks), 4), dtype=np.int64)
    ask: Arena = np.empty(ASK_WORDS, dtype=np.int64)
    write_ask(
        plan.words,
        plan.keys,
        blocks,
        len(request.tokens),
        tokens,
        *key_words(request.seed(tokens)),
        every,
        request.computed,
        loaded,
        load is None,
        rows,
        ask,
    )
    return rows, ask

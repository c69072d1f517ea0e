"""match: how far a prompt's prefix is here. Pure: these functions change no table."""

from .compile import compiled
from .index import find_unit
from .prefetch import AHEAD, prefetch_head, prefetch_place, unit_in_place
from .views import (
    unit_rows,
)
from .words import (
    UNIT_GENERATION,
    Arena,
)

__all__ = ["find_checkpoint", "generation_of", "list_checkpoints", "walk_blocks"]


@compiled
def walk_blocks(arena: Arena, keys: Arena, plan: Arena) -> int:
    """Follow the prefix index from the root until a block is missing.

    Args:
        arena: the arena.
        keys: int64[n, 2], keys of the prompt's whole blocks.
        plan: int64[n, 2], filled with block ids and generations.

    Returns:
        Blocks found.

    Mutates:
        plan.
    """
    num_blocks = keys.shape[0]
    for index in range(min(2 * AHEAD, num_blocks)):
        prefetch_place(arena, True, keys[index, 0], keys[index, 1])
    for index in range(num_blocks):
        # Two steps ahead the place of the key, one step ahead the row of what stands there.
        if index + 2 * AHEAD < num_blocks:
            key = keys[index + 2 * AHEAD]
            prefetch_place(arena, True, key[0], key[1])
        if index + AHEAD < num_blocks:
            key = keys[index + AHEAD]
            prefetch_head(arena, True, unit_in_place(arena, True, key[0], key[1]))
        block = find_unit(arena, True, keys[index, 0], keys[index, 1])
        if block == 0:
            return index
        plan[index, 0] = block
        plan[index, 1] = unit_rows(arena, True)[block, UNIT_GENERATION]
    return keys.shape[0]


@compiled
def find_checkpoint(arena: Arena, keys: Arena, limit: int, found: Arena) -> int:
    """The furthest checkpoint at or below ``limit`` blocks.

    Args:
        arena: the arena.
        keys: int64[n, 2].
        limit: blocks, at most n.
        found: int64[2], filled with the image's id and generation; zeros for none.

    Returns:
        Blocks before the checkpoint; 0 for none.

    Mutates:
        found.
    """
    for num_blocks in range(limit, 0, -1):
        image = find_unit(arena, False, keys[num_blocks - 1, 0], keys[num_blocks - 1, 1])
        if image != 0:
            found[0] = image
            found[1] = unit_rows(arena, False)[image, UNIT_GENERATION]
            return num_blocks
    found[0] = 0
    found[1] = 0
    return 0


@compiled
def list_checkpoints(arena: Arena, keys: Arena, limit: int, places: Arena) -> int:
    """Every checkpoint at or below ``limit`` blocks.

    Args:
        arena: the arena.
        keys: int64[n, 2].
        limit: blocks, at most n.
        places: int64[limit], filled with the blocks before each, ascending.

    Returns:
        How many there are.

    Mutates:
        places.
    """
    count = 0
    for num_blocks in range(1, limit + 1):
        if find_unit(arena, False, keys[num_blocks - 1, 0], keys[num_blocks - 1, 1]) != 0:
            places[count] = num_blocks
            count += 1
    return count


@compiled
def generation_of(arena: Arena, is_block: bool, unit: int) -> int:
    """Generation of a unit."""
    return unit_rows(arena, is_block)[unit, UNIT_GENERATION]

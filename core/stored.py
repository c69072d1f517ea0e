"""Stored objects: which keys' blocks and checkpoints lie in which tiers below the device.

A row a key, found through an index of its own, in a list by last use. A row says what this manager
saw: the tiers themselves are the truth, and an object that is gone is found out when it is loaded.
Where the table is full the row used longest ago is forgotten; its objects stay where they are.
"""

from .compile import compiled, helper
from .index import add_row, find_row, remove_row
from .refusals import OK
from .views import stored_places, stored_rows
from .words import (
    CHECKPOINT_TIERS,
    META_FREE_STORED,
    META_STORED_KEYS,
    STORED_KEY_0,
    STORED_KEY_1,
    STORED_NEXT,
    STORED_POSITION,
    STORED_PREV,
    STORED_SEQNO,
    STORED_TIERS,
    STORED_WORDS,
    TIERS_MASK,
    Arena,
)

__all__ = ["find_stored_checkpoint", "set_stored", "tiers_of", "tiers_of_all", "walk_stored"]


@helper
def _find(arena: Arena, key_0: int, key_1: int) -> int:
    rows = stored_rows(arena)
    if rows.shape[0] == 1:
        return 0
    return find_row(stored_places(arena), rows, rows.shape[0] - 1, key_0, key_1)


@compiled
def tiers_of(arena: Arena, is_checkpoint: bool, key_0: int, key_1: int) -> int:
    """A bit for each tier that holds the block, or checkpoint, of a key; 0 for none."""
    row = _find(arena, key_0, key_1)
    shift = CHECKPOINT_TIERS if is_checkpoint else 0
    return (stored_rows(arena)[row, STORED_TIERS] >> shift) & TIERS_MASK if row != 0 else 0


@compiled
def tiers_of_all(arena: Arena, is_checkpoint: bool, keys: Arena, tiers: Arena) -> int:
    """:func:`tiers_of` each of int64[n, 2] keys into int64[n]; returns 0."""
    for index in range(tiers.shape[0]):
        tiers[index] = tiers_of(arena, is_checkpoint, keys[index, 0], keys[index, 1])
    return 0


@compiled
def walk_stored(arena: Arena, keys: Arena, first: int, limit: int, tiers: int) -> int:
    """Follow a prefix on through stored blocks until one is in none of these tiers.

    Args:
        arena: the arena.
        keys: int64[n, 2], keys of the prompt's whole blocks.
        first: block to begin with.
        limit: block to end before, at most n.
        tiers: a bit a tier that can be read now.

    Returns:
        The first block that is not stored, at most ``limit``.
    """
    index = first
    while index < limit and tiers_of(arena, False, keys[index, 0], keys[index, 1]) & tiers != 0:
        index += 1
    return index


@compiled
def find_stored_checkpoint(arena: Arena, keys: Arena, limit: int, above: int, tiers: int) -> int:
    """Blocks before the furthest stored checkpoint in ``(above, limit]``; 0 for none."""
    for num_blocks in range(limit, above, -1):
        key_0, key_1 = keys[num_blocks - 1, 0], keys[num_blocks - 1, 1]
        if tiers_of(arena, True, key_0, key_1) & tiers != 0:
            return num_blocks
    return 0


@compiled
def set_stored(arena: Arena, event: Arena) -> int:
    """OBJECT_STORED, OBJECT_REMOVED: the tiers in which a key's block or checkpoint now is."""
    rows = stored_rows(arena)
    if rows.shape[0] == 1:
        return OK  # no tiers are configured: nothing is remembered of them
    row = _find(arena, event[4], event[5])
    tiers = (event[7] >> 32) & TIERS_MASK
    if row == 0:
        if tiers == 0:
            return OK
        row = _take_row(arena, event)
    else:
        _unlink(rows, row)
    shift = CHECKPOINT_TIERS if (event[7] >> 48) & 1 else 0
    rows[row, STORED_TIERS] = (rows[row, STORED_TIERS] & ~(TIERS_MASK << shift)) | tiers << shift
    if rows[row, STORED_TIERS] == 0:
        remove_row(stored_places(arena), rows, row)
        _give_back(arena, row)
        return OK
    rows[row, STORED_SEQNO] = event[0]
    _append(rows, row)
    return OK


@helper
def _take_row(arena: Arena, event: Arena) -> int:
    """A row for a new key; where none is free, the one used longest ago."""
    rows = stored_rows(arena)
    if arena[META_FREE_STORED] == 0:
        oldest = rows[0, STORED_NEXT]
        _unlink(rows, oldest)
        remove_row(stored_places(arena), rows, oldest)
        _give_back(arena, oldest)
    row = arena[META_FREE_STORED]
    arena[META_FREE_STORED] = rows[row, STORED_NEXT]
    arena[META_STORED_KEYS] += 1
    rows[row, STORED_NEXT] = 0
    rows[row, STORED_KEY_0] = event[4]
    rows[row, STORED_KEY_1] = event[5]
    rows[row, STORED_POSITION] = event[7] & 0xFFFF_FFFF
    add_row(stored_places(arena), rows, row)
    return row


@helper
def _give_back(arena: Arena, row: int) -> None:
    rows = stored_rows(arena)
    for word in range(STORED_WORDS):
        rows[row, word] = 0
    rows[row, STORED_NEXT] = arena[META_FREE_STORED]
    arena[META_FREE_STORED] = row
    arena[META_STORED_KEYS] -= 1


@helper
def _unlink(rows: Arena, row: int) -> None:
    before, after = rows[row, STORED_PREV], rows[row, STORED_NEXT]
    rows[before, STORED_NEXT] = after
    rows[after, STORED_PREV] = before


@helper
def _append(rows: Arena, row: int) -> None:
    last = rows[0, STORED_PREV]
    rows[last, STORED_NEXT] = row
    rows[row, STORED_PREV] = last
    rows[row, STORED_NEXT] = 0
    rows[0, STORED_PREV] = row

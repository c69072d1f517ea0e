"""The prefix index: 16-byte key → unit, open addressing with linear probing.

A place holds a unit's id and, above it, its key folded to 32 bits: enough to find its home, to pass
by other keys without a look at their units, and to notice a key damaged in any bit. Deletion shifts
what follows back, so there are no tombstones and the layout depends only on the history of keys.
"""

from .compile import compiled, helper
from .views import (
    unit_places,
    unit_rows,
)
from .words import (
    UNIT_KEY_0,
    UNIT_KEY_1,
    Arena,
)

__all__ = ["find_unit", "folded_key", "index_unit", "unindex_unit"]

_MASK_32 = 0xFFFF_FFFF


@helper
def folded_key(key_0: int, key_1: int) -> int:
    """A key in 32 bits."""
    both = key_0 ^ key_1
    return (both ^ (both >> 32)) & _MASK_32


@compiled
def find_unit(arena: Arena, is_block: bool, key_0: int, key_1: int) -> int:
    """Unit indexed under a key, or 0."""
    rows = unit_rows(arena, is_block)
    return find_row(unit_places(arena, is_block), rows, rows.shape[0] - 3, key_0, key_1)


@helper
def find_row(places: Arena, rows: Arena, last: int, key_0: int, key_1: int) -> int:
    """Row (up to ``last``) with a key in its second and third word, or 0."""
    mask = places.shape[0] - 1
    folded = folded_key(key_0, key_1)
    place = folded & mask
    while True:
        entry = places[place]
        if entry == 0:
            return 0
        unit = entry & _MASK_32
        if (
            (entry >> 32) & _MASK_32 == folded
            and unit <= last
            and rows[unit, UNIT_KEY_0] == key_0
            and rows[unit, UNIT_KEY_1] == key_1
        ):
            return unit
        place = (place + 1) & mask


@helper
def index_unit(arena: Arena, is_block: bool, unit: int) -> None:
    """Make a unit findable under the key in its row; the key must be absent."""
    add_row(unit_places(arena, is_block), unit_rows(arena, is_block), unit)


@helper
def add_row(places: Arena, rows: Arena, unit: int) -> None:
    """Make a row findable under its key, which must be absent."""
    mask = places.shape[0] - 1
    folded = folded_key(rows[unit, UNIT_KEY_0], rows[unit, UNIT_KEY_1])
    place = folded & mask
    while places[place] != 0:
        place = (place + 1) & mask
    places[place] = folded << 32 | unit


@helper
def unindex_unit(arena: Arena, is_block: bool, unit: int) -> bool:
    """Make a unit unfindable.

    Returns:
        False where the index did not hold it.
    """
    return remove_row(unit_places(arena, is_block), unit_rows(arena, is_block), unit)


@helper
def remove_row(places: Arena, rows: Arena, unit: int) -> bool:
    """Make a row unfindable; False where it was not to be found."""
    mask = places.shape[0] - 1
    folded = folded_key(rows[unit, UNIT_KEY_0], rows[unit, UNIT_KEY_1])
    entry = folded << 32 | unit
    place = folded & mask
    while places[place] != entry:
        if places[place] == 0:
            return False
        place = (place + 1) & mask
    hole = place
    place = (place + 1) & mask
    while places[place] != 0:
        home = (places[place] >> 32) & mask
        # Move it into the hole unless its home lies cyclically after the hole.
        if ((place - home) & mask) >= ((place - hole) & mask):
            places[hole] = places[place]
            hole = place
        place = (place + 1) & mask
    places[hole] = 0
    return True

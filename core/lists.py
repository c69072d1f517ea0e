"""Circular doubly linked lists inside table rows: O(1) unlink and append, in a fixed order.

A list is headed by a sentinel row whose links point at the first and last member. Order is part
of the state: the free lists are first in first out, the idle lists go from least to most
recently released.
"""

from .compile import helper
from .views import page_table, unit_rows
from .words import (
    META_FREE_BLOCKS,
    META_FREE_IMAGES,
    META_IDLE_BLOCKS,
    META_IDLE_IMAGES,
    PAGE_NEXT,
    PAGE_PREV,
    UNIT_NEXT,
    UNIT_PREV,
    Arena,
)

__all__ = ["append_page", "append_unit", "prepend_unit", "unlink_page", "unlink_unit"]

FREE_LIST, IDLE_LIST, LIMBO_LIST = range(3)


@helper
def sentinel_of(arena: Arena, is_block: bool, which: int) -> int:
    """Row that heads a list of units: free, idle (indexed, unreferenced) or limbo."""
    if which == FREE_LIST:
        return 0
    return unit_rows(arena, is_block).shape[0] - 3 + which


@helper
def count_in_list(arena: Arena, is_block: bool, which: int, change: int) -> None:
    """Keep the lengths of the free and idle lists."""
    if which == FREE_LIST:
        arena[META_FREE_BLOCKS if is_block else META_FREE_IMAGES] += change
    elif which == IDLE_LIST:
        arena[META_IDLE_BLOCKS if is_block else META_IDLE_IMAGES] += change


@helper
def _insert_unit(arena: Arena, is_block: bool, which: int, unit: int, before: int) -> None:
    """Put a unit into a list, behind one of its rows."""
    rows = unit_rows(arena, is_block)
    after = rows[before, UNIT_NEXT]
    rows[before, UNIT_NEXT] = unit
    rows[unit, UNIT_PREV] = before
    rows[unit, UNIT_NEXT] = after
    rows[after, UNIT_PREV] = unit
    count_in_list(arena, is_block, which, 1)


@helper
def append_unit(arena: Arena, is_block: bool, which: int, unit: int) -> None:
    """Add a unit at the end of a list."""
    last = unit_rows(arena, is_block)[sentinel_of(arena, is_block, which), UNIT_PREV]
    _insert_unit(arena, is_block, which, unit, last)


@helper
def prepend_unit(arena: Arena, is_block: bool, which: int, unit: int) -> None:
    """Add a unit at the front of a list."""
    _insert_unit(arena, is_block, which, unit, sentinel_of(arena, is_block, which))


@helper
def unlink_unit(arena: Arena, is_block: bool, which: int, unit: int) -> None:
    """Take a unit out of the list it is in."""
    rows = unit_rows(arena, is_block)
    before, after = rows[unit, UNIT_PREV], rows[unit, UNIT_NEXT]
    rows[before, UNIT_NEXT] = after
    rows[after, UNIT_PREV] = before
    rows[unit, UNIT_PREV] = 0
    rows[unit, UNIT_NEXT] = 0
    count_in_list(arena, is_block, which, -1)


@helper
def append_page(arena: Arena, first: int, slot: int) -> None:
    """Give a page back at the end of its pool's free list; ``first`` is the pool's row 0."""
    pages = page_table(arena)
    last = pages[first, PAGE_PREV]
    pages[first + last, PAGE_NEXT] = slot
    pages[first + slot, PAGE_PREV] = last
    pages[first + slot, PAGE_NEXT] = 0
    pages[first, PAGE_PREV] = slot


@helper
def unlink_page(arena: Arena, first: int, slot: int) -> None:
    """Take a page out of its pool's free list."""
    pages = page_table(arena)
    before, after = pages[first + slot, PAGE_PREV], pages[first + slot, PAGE_NEXT]
    pages[first + before, PAGE_NEXT] = after
    pages[first + after, PAGE_PREV] = before
    pages[first + slot, PAGE_PREV] = 0
    pages[first + slot, PAGE_NEXT] = 0

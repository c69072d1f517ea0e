"""Damage planted in a manager's tables, as a bug or a stray write would leave it."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from kvstrata import CacheManager, Sequence
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    HOLDER_BLOCKS,
    HOLDER_KIND,
    PAGE_NEXT,
    PAGE_PREV,
    PAGE_STATE,
    POOL_COUNTS,
    POOL_FIRST,
    UNIT_INDEXED,
    UNIT_KEY_1,
    UNIT_NEXT,
    UNIT_PAGES,
    UNIT_REFS,
    UNIT_STATE,
)

from .support import request

FULL_POOL, SWA_POOL = 0, 1


def row_of_page(cache: CacheManager, pool: int, slot: int) -> npt.NDArray[np.int64]:
    row: npt.NDArray[np.int64]
    row = cache.tables.pages[int(cache.tables.pools[pool, POOL_FIRST]) + slot]
    return row


def indexed_blocks(cache: CacheManager) -> list[int]:
    last = len(cache.tables.blocks.pages)
    states = cache.tables.blocks.rows[:last, UNIT_STATE]
    return [int(block) for block in np.flatnonzero(states == UNIT_INDEXED)]


def free_page(cache: CacheManager, slot: int) -> None:
    """A page is freed behind the index's back: list and counts are right, its block is not."""
    pages, pool = cache.tables.pages, cache.tables.pools[FULL_POOL]
    last = int(pages[0, PAGE_PREV])
    pages[slot, :] = 0
    pages[[last, slot], [PAGE_NEXT, PAGE_PREV]] = slot, last
    pages[0, PAGE_PREV] = slot
    pool[POOL_COUNTS + PageState.SEALED] -= 1
    pool[POOL_COUNTS + PageState.FREE] += 1


def freed_behind_the_index(cache: CacheManager, running: Sequence) -> None:
    free_page(cache, int(cache.tables.blocks.pages[indexed_blocks(cache)[0], 0]))


def two_slots_swapped(cache: CacheManager, running: Sequence) -> None:
    first, second, *_ = indexed_blocks(cache)
    pages = cache.tables.blocks.pages
    pages[[first, second]] = pages[[second, first]]


def a_page_owned_twice(cache: CacheManager, running: Sequence) -> None:
    first, second, *_ = indexed_blocks(cache)
    cache.tables.blocks.pages[second, 0] = cache.tables.blocks.pages[first, 0]


def a_free_page_resurrected(cache: CacheManager, running: Sequence) -> None:
    slot = int(cache.tables.pages[0, PAGE_NEXT])
    row_of_page(cache, FULL_POOL, slot)[PAGE_STATE] = PageState.SEALED
    counts = cache.tables.pools[FULL_POOL]
    counts[POOL_COUNTS + PageState.FREE] -= 1
    counts[POOL_COUNTS + PageState.SEALED] += 1


def a_lost_image_page(cache: CacheManager, running: Sequence) -> None:
    images = cache.tables.images
    last = len(images.pages)
    image = int(np.flatnonzero(images.rows[:last, UNIT_STATE] == UNIT_INDEXED)[0])
    images.pages[image, 0] = 0


def a_flipped_key(cache: CacheManager, running: Sequence) -> None:
    cache.tables.blocks.rows[indexed_blocks(cache)[-1], UNIT_KEY_1] ^= 1 << 40


def negative_references(cache: CacheManager, running: Sequence) -> None:
    idle = [
        block for block in indexed_blocks(cache) if cache.tables.blocks.rows[block, UNIT_REFS] == 0
    ]
    cache.tables.blocks.rows[idle[0], UNIT_REFS] = -1


def a_place_of_another_unit(cache: CacheManager, running: Sequence) -> None:
    first, second, *_ = indexed_blocks(cache)
    places = cache.tables.blocks.places
    places[np.flatnonzero(places & 0xFFFF_FFFF == first)[0]] += second - first


def a_wrong_state_count(cache: CacheManager, running: Sequence) -> None:
    counts = cache.tables.pools[SWA_POOL]
    counts[POOL_COUNTS + PageState.OPEN] += 1
    counts[POOL_COUNTS + PageState.FREE] -= 1


def a_lease_on_a_freed_block(cache: CacheManager, running: Sequence) -> None:
    lease = cache.lease(cache.match(request("leased", 40)))
    free = int(cache.tables.blocks.rows[0, UNIT_NEXT])
    cache.tables.holder_blocks[lease.id & 0xFFFF, 0] = free


def a_page_counted_twice(cache: CacheManager, running: Sequence) -> None:
    cache.tables.blocks.rows[indexed_blocks(cache)[0], UNIT_PAGES] += 1


def a_list_that_runs_in_a_circle(cache: CacheManager, running: Sequence) -> None:
    first = int(cache.tables.pages[0, PAGE_NEXT])
    cache.tables.pages[first, PAGE_NEXT] = first


def an_open_page_of_an_indexed_block(cache: CacheManager, running: Sequence) -> None:
    slot = int(cache.tables.blocks.pages[indexed_blocks(cache)[0], 0])
    row_of_page(cache, FULL_POOL, slot)[PAGE_STATE] = PageState.OPEN
    counts = cache.tables.pools[FULL_POOL]
    counts[POOL_COUNTS + PageState.SEALED] -= 1
    counts[POOL_COUNTS + PageState.OPEN] += 1


def a_sequence_that_lost_a_block(cache: CacheManager, running: Sequence) -> None:
    cache.tables.holders[running.id & 0xFFFF, HOLDER_BLOCKS] -= 1


def a_holder_that_vanished(cache: CacheManager, running: Sequence) -> None:
    cache.tables.holders[running.id & 0xFFFF, HOLDER_KIND] = 0


def an_unknown_state(cache: CacheManager, running: Sequence) -> None:
    cache.tables.pages[1, PAGE_STATE] = 77


DAMAGES: list[Callable[[CacheManager, Sequence], None]] = [
    freed_behind_the_index,
    two_slots_swapped,
    a_page_owned_twice,
    a_free_page_resurrected,
    a_lost_image_page,
    a_flipped_key,
    negative_references,
    a_place_of_another_unit,
    a_wrong_state_count,
    a_lease_on_a_freed_block,
    a_page_counted_twice,
    a_list_that_runs_in_a_circle,
    an_open_page_of_an_indexed_block,
    a_sequence_that_lost_a_block,
    a_holder_that_vanished,
    an_unknown_state,
]

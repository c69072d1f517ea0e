"""A page comes from its group's pool, belongs to one unit there, and goes back to that pool."""

from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager
from kvstrata.core.events import EventType
from kvstrata.core.refusals import NO_SUCH_GROUP, NO_SUCH_PAGE, NOT_OWNED
from kvstrata.core.replay import apply_events
from kvstrata.core.states import NEXT_STATE, PageState
from kvstrata.core.words import (
    HOLDER_BLOCKS,
    HOLDER_ID,
    HOLDER_IMAGES,
    META_LAST_SEQNO,
    META_REFUSAL,
    PAGE_GENERATION,
    PAGE_STATE,
    POOL_FIRST,
    POOL_KIND,
    POOL_SLOTS,
    Arena,
)
from tests.face.support import prefill, request, serve

from .support import GROUPS, HISTORY, LAYOUT, STATES, filled


def running(cache: CacheManager) -> int:
    """Row of a sequence with an open block."""
    return prefill(cache, request("running", 40)).id & 0xFFFF


def open_image(cache: CacheManager, images: list[int], group: int) -> tuple[int, int]:
    """The first of a sequence's images that is in use, and its page of a group."""
    first = int(cache.tables.pools[group, POOL_FIRST])
    for image in filter(None, images):
        slot = int(cache.tables.images.pages[image, group - len(HISTORY)])
        if cache.tables.pages[first + slot, PAGE_STATE] == PageState.OPEN:
            return image, slot
    raise AssertionError("expected an image in use, found none")


def forged(cache: CacheManager, kind: EventType, group: int, slot: int, payload: Any) -> Arena:
    """The next event, right in all but what it says of its page."""
    pools, pages = cache.tables.pools, cache.tables.pages
    row = np.zeros(8, dtype=np.int64)
    if group < len(pools) and slot < int(pools[group, POOL_SLOTS]):
        row = pages[int(pools[group, POOL_FIRST]) + slot]
    after = int(NEXT_STATE[row[PAGE_STATE], kind]) & 0xFF
    event = np.zeros((1, 8), dtype=np.int64)
    event[0, 0] = cache.arena[META_LAST_SEQNO] + 1
    event[0, 2] = kind | group << 8 | after << 16
    event[0, 3] = slot | int(row[PAGE_GENERATION]) << 32
    event[0, 4:] = payload
    return event


def refusal(cache: CacheManager, event: Arena) -> int:
    """Why apply refuses an event, on a copy of the tables; 0 where it does not."""
    arena = cache.arena.copy()
    applied = int(apply_events(arena, event))
    return 0 if applied == 1 else int(arena[META_REFUSAL])


@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_a_page_is_not_sealed_for_a_unit_it_is_not_of(group: int) -> None:
    cache = filled()
    row = running(cache)
    holder, tables = cache.tables.holders[row], cache.tables
    if group < len(HISTORY):
        unit = int(tables.holder_blocks[row, int(holder[HOLDER_BLOCKS]) - 1])
        slot = int(tables.blocks.pages[unit, group])
    else:
        unit, slot = open_image(cache, holder[HOLDER_IMAGES:].tolist(), group)
    extra = 3 << 32
    of_another = forged(cache, EventType.PAGE_SEALED, group, slot, [1, 2, 0, unit + 1 | extra])
    assert refusal(cache, of_another) == NOT_OWNED
    its_own = forged(cache, EventType.PAGE_SEALED, group, slot, [1, 2, 0, unit | extra])
    its_own[0, 2] |= 1 << 48  # its references
    assert refusal(cache, its_own) == 0


def test_a_slot_counts_in_its_own_pool_alone() -> None:
    """The largest pool's last slot is no page of a smaller one."""
    cache = filled()
    largest = max(int(pool[POOL_SLOTS]) for pool in cache.tables.pools)
    for group in range(len(GROUPS)):
        if int(cache.tables.pools[group, POOL_SLOTS]) < largest:
            event = forged(cache, EventType.PAGE_FREED, group, largest - 1, [0, 0, 0, 0])
            assert refusal(cache, event) == NO_SUCH_PAGE
        scratch = forged(cache, EventType.PAGE_FREED, group, 0, [0, 0, 0, 0])
        assert refusal(cache, scratch) == NO_SUCH_PAGE
    beyond = forged(cache, EventType.PAGE_FREED, len(GROUPS), 1, [0, 0, 0, 0])
    assert refusal(cache, beyond) == NO_SUCH_GROUP


def test_pools_keep_their_kind_and_their_pages_through_everything() -> None:
    cache = filled()
    kinds = [int(group.kind) for group in LAYOUT.groups]
    sizes = cache.tables.pools[:, [POOL_FIRST, POOL_SLOTS]].tolist()
    for number in range(20):
        serve(cache, request(f"more {number}", 90), num_output=20)
        cache.check_integrity()
        for pool in cache.stats().pools:
            assert sum(pool.pages.values()) == pool.slots - 1
    assert cache.tables.pools[:, POOL_KIND].tolist() == kinds
    assert cache.tables.pools[:, [POOL_FIRST, POOL_SLOTS]].tolist() == sizes


@pytest.mark.parametrize("group", [HISTORY[0], STATES[0]])
def test_nobody_writes_a_page_of_another(group: str) -> None:
    cache = filled()
    mine, other = prefill(cache, request("mine", 40)), prefill(cache, request("other", 40))

    def open_slot(sequence: Any) -> int:
        if group in HISTORY:
            return int(cache.block_slots(sequence, group)[-1])
        return cache.image_slots(sequence)[group]

    assert cache.tables.holders[mine.id & 0xFFFF, HOLDER_ID] == mine.id
    assert cache.writable(group, [open_slot(mine)], mine)
    assert cache.writable(group, [open_slot(other)])
    assert not cache.writable(group, [open_slot(other)], mine)
    assert not cache.writable(group, [0], mine)
    assert not cache.writable(group, [10**6], mine)

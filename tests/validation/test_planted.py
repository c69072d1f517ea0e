"""Ten structural faults planted in the tables of a cache with default settings: all are found."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from kvstrata import CacheManager, InvariantViolation, Lease, Request, StaleLease
from kvstrata.core.integrity import find_violations
from kvstrata.core.states import PageState
from kvstrata.core.words import (
    PAGE_GENERATION,
    PAGE_NEXT,
    PAGE_STATE,
    PAGE_UNIT,
    POOL_COUNTS,
    UNIT_GENERATION,
    UNIT_KEY_0,
    UNIT_NEXT,
    UNIT_REFS,
)
from kvstrata.storage import BadPage
from tests.face.damage import free_page
from tests.face.support import check_sums, request, serve

from .support import (
    HISTORY,
    SHORT,
    WANTED,
    filled,
    page_row,
    pages_of,
    part_of,
    slot_of,
    unit_row,
)

OTHER, LEASED = request("other", 90), request("leased", 60)
Fault = Callable[[CacheManager, Lease], None]
Bytes = dict[tuple[str, int], bytes]


def block(cache: CacheManager, index: int) -> int:
    return int(cache.match(WANTED).blocks[index, 0])


def a_page_freed_behind_the_index(cache: CacheManager, lease: Lease) -> None:
    free_page(cache, slot_of(cache, WANTED, "c4", 2))


def two_pages_swapped(cache: CacheManager, lease: Lease) -> None:
    first, second = (
        page_row(cache, "c16", slot_of(cache, WANTED, "c16", index)) for index in (1, 2)
    )
    first[PAGE_UNIT], second[PAGE_UNIT] = int(second[PAGE_UNIT]), int(first[PAGE_UNIT])


def a_page_owned_twice(cache: CacheManager, lease: Lease) -> None:
    index = part_of("c4.index")
    pages_of(cache, OTHER, "c4.index", 2)[index] = slot_of(cache, WANTED, "c4.index", 2)


def a_resurrected_page(cache: CacheManager, lease: Lease) -> None:
    slot = int(page_row(cache, "c4", 0)[PAGE_NEXT])
    page_row(cache, "c4", slot)[PAGE_STATE] = PageState.SEALED
    cache.tables.pools[0, POOL_COUNTS + PageState.FREE] -= 1
    cache.tables.pools[0, POOL_COUNTS + PageState.SEALED] += 1


def a_lost_window(cache: CacheManager, lease: Lease) -> None:
    pages_of(cache, WANTED, "swa")[part_of("swa")] = 0


def a_flipped_bit_of_a_key(cache: CacheManager, lease: Lease) -> None:
    unit_row(cache, WANTED, "c4", 3)[UNIT_KEY_0] ^= 1 << 17


def a_negative_reference_count(cache: CacheManager, lease: Lease) -> None:
    unit_row(cache, WANTED, "c4", 3)[UNIT_REFS] = -1


def an_index_place_of_another_unit(cache: CacheManager, lease: Lease) -> None:
    """The place of a block names the block of another prompt."""
    places = cache.tables.blocks.places
    mine = np.flatnonzero(places & 0xFFFF_FFFF == block(cache, 2))
    places[mine] += int(cache.match(OTHER).blocks[2, 0]) - block(cache, 2)


def an_index_place_of_the_other_side(cache: CacheManager, lease: Lease) -> None:
    """The place of a block names a checkpoint's id."""
    places, image = cache.tables.blocks.places, cache.match(WANTED).checkpoint[0]
    places[np.flatnonzero(places & 0xFFFF_FFFF == block(cache, 4))] += image - block(cache, 4)


def a_stale_generation(cache: CacheManager, lease: Lease) -> None:
    """A block was taken again since it was leased."""
    cache.tables.blocks.rows[int(lease.plan.blocks[1, 0]), UNIT_GENERATION] += 1


def a_lease_on_a_freed_page(cache: CacheManager, lease: Lease) -> None:
    free = int(cache.tables.blocks.rows[0, UNIT_NEXT])
    cache.tables.holder_blocks[lease.id & 0xFFFF, 0] = free


FAULTS: list[Fault] = [
    a_page_freed_behind_the_index,
    two_pages_swapped,
    a_page_owned_twice,
    a_resurrected_page,
    a_lost_window,
    a_flipped_bit_of_a_key,
    a_negative_reference_count,
    an_index_place_of_another_unit,
    an_index_place_of_the_other_side,
    a_stale_generation,
    a_lease_on_a_freed_page,
]
each_fault = pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)


def prepared() -> tuple[CacheManager, Lease]:
    cache = filled(verify_hits="always")
    for wanted in (LEASED, replace(OTHER, tokens=OTHER.tokens[:50]), OTHER, SHORT, WANTED):
        serve(cache, wanted)
    free = cache.begin(cache.match(request("free some", 20)))
    lease = cache.lease(cache.match(LEASED))
    free.cancel()
    check_sums(cache)
    assert cache.match(WANTED).resume_at == cache.match(OTHER).resume_at == 80
    return cache, lease


def bytes_of(cache: CacheManager, wanted: Request) -> Bytes:
    """What each page of a hit holds, by group and block's index, or image's position."""
    assert cache.pools is not None
    found = {}
    for group in HISTORY:
        for index in range(5):
            page = cache.pools.storage(group)[slot_of(cache, wanted, group, index)]
            found[group, index] = page.numpy().tobytes()
    for limit in (80, 48):
        plan = cache.match(replace(wanted, max_resume=limit))
        for group, slot in cache.slots_of_image(plan.checkpoint[0]).items():
            found[group, plan.resume_at] = cache.pools.storage(group)[slot].numpy().tobytes()
    return found


@each_fault
def test_found(fault: Fault) -> None:
    """By the laws, or by the lease itself."""
    cache, lease = prepared()
    fault(cache, lease)
    if fault is a_stale_generation:
        with pytest.raises(StaleLease, match="match again"):
            lease.verify()
        return
    assert find_violations(cache.arena)
    with pytest.raises(InvariantViolation):
        cache.check_integrity()
    with pytest.raises(InvariantViolation, match="mutates no more"):
        cache.begin(cache.match(WANTED))


@each_fault
@pytest.mark.parametrize("wanted", [WANTED, OTHER, LEASED], ids=["wanted", "other", "leased"])
def test_no_hit_reads_other_pages(fault: Fault, wanted: Request) -> None:
    """Whatever is adopted in spite of it has the bytes that were sealed for exactly this prefix."""
    cache, lease = prepared()
    assert cache.pools is not None
    if wanted is not LEASED:
        expected = bytes_of(cache, wanted)
    fault(cache, lease)
    try:
        sequence = cache.begin(cache.match(wanted))
    except InvariantViolation:
        return  # found: the manager mutates no more
    plan = sequence.plan
    assert len(cache.block_slots(sequence, "c4")) == len(plan.blocks)
    if wanted is LEASED:
        return
    for group in HISTORY:
        for index, slot in enumerate(cache.block_slots(sequence, group).tolist()):
            page = cache.pools.storage(group)[slot].numpy().tobytes()
            assert page == expected[group, index]
    if plan.source == "checkpoint":
        for group, slot in cache.image_slots(sequence).items():
            page = cache.pools.storage(group)[slot].numpy().tobytes()
            assert page == expected[group, plan.resume_at]


def test_a_plan_of_a_stale_generation_is_refused() -> None:
    cache, _ = prepared()
    plan = cache.match(WANTED)
    unit_row(cache, WANTED, "c4", 2)[UNIT_GENERATION] += 1
    before = cache.digest()
    with pytest.raises(StaleLease):
        cache.begin(plan)
    with pytest.raises(StaleLease):
        cache.lease(plan)
    assert cache.digest() == before


def test_a_lease_whose_block_was_freed_is_not_verified() -> None:
    cache, lease = prepared()
    lease.verify()
    a_lease_on_a_freed_page(cache, lease)
    with pytest.raises(StaleLease):
        lease.verify()


def test_a_verdict_about_a_stale_generation_withdraws_nothing() -> None:
    """A page found bad, taken again before the word came: the new one is not the bad one."""
    cache, _ = prepared()
    slot = slot_of(cache, WANTED, "c4", 3)
    generation = int(page_row(cache, "c4", slot)[PAGE_GENERATION])
    for stale in (generation - 1, generation + 1):
        before = cache.digest()
        cache.quarantine(BadPage(0, slot, stale, 1, 2))
        assert cache.digest() == before
    assert cache.match(WANTED).resume_at == 80

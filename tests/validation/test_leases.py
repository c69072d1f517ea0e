"""Leases: the addresses are the pools', and verify says whether the pages still are the ones."""

import ctypes

import numpy as np
import pytest

from kvstrata import CacheManager, ConfigError, InvariantViolation, OutOfPages, StaleLease
from kvstrata.core.states import PageState
from kvstrata.core.words import HOLDER_BLOCKS, PAGE_STATE
from tests.face.support import check_sums, memory_manager, request, serve

from .support import (
    GROUPS,
    HISTORY,
    WANTED,
    filled,
    flip,
    page_row,
    part_of,
    slot_of,
)


@pytest.fixture
def cache() -> CacheManager:
    return filled()


def test_addresses_are_the_pages(cache: CacheManager) -> None:
    """What is read at the address of a leased page are the bytes that the pool has there."""
    assert cache.pools is not None
    with cache.lease(cache.match(WANTED)) as lease:
        pointers = lease.state_data_ptrs
        assert list(pointers) == GROUPS
        for name in GROUPS:
            slot, storage = slot_of(cache, WANTED, name), cache.pools.storage(name)
            at = pointers[name]
            assert (at.slots, at.page_bytes) == tuple(storage.shape)
            assert at.page(slot) == storage[slot].data_ptr()
            through = np.ctypeslib.as_array(
                (ctypes.c_uint8 * at.page_bytes).from_address(at.page(slot))
            )
            assert through.tobytes() == storage[slot].numpy().tobytes()
            with pytest.raises(TypeError):
                pointers[name] = at  # type: ignore[index]
    with pytest.raises(StaleLease, match="released"):
        lease.state_data_ptrs  # noqa: B018


def test_it_pins(cache: CacheManager) -> None:
    """As long as it is held nothing of it is evicted, whatever else is computed."""
    assert cache.pools is not None
    lease = cache.lease(cache.match(WANTED))
    pages = {name: slot_of(cache, WANTED, name) for name in GROUPS}
    held = {name: cache.pools.storage(name)[slot].clone() for name, slot in pages.items()}
    for number in range(15):
        serve(cache, request(f"pressure {number}", 90))
        lease.verify()
    for name, slot in pages.items():
        assert cache.pools.storage(name)[slot].equal(held[name])
        assert not cache.writable(name, [slot])
    lease.release()
    for number in range(15):
        serve(cache, request(f"more {number}", 90))
    assert cache.match(WANTED).is_cold
    check_sums(cache)


def test_released_it_is_good_for_nothing(cache: CacheManager) -> None:
    lease = cache.lease(cache.match(WANTED))
    lease.verify()
    lease.release()
    for call in (lease.verify, lease.release):
        with pytest.raises(StaleLease, match="released"):
            call()
    other = cache.lease(cache.match(WANTED))
    assert other.id != lease.id
    with pytest.raises(StaleLease, match="released"):
        lease.verify()
    other.verify()


@pytest.mark.parametrize("group", GROUPS)
def test_a_quarantined_page(cache: CacheManager, group: str) -> None:
    lease = cache.lease(cache.match(WANTED))
    slot = slot_of(cache, WANTED, group, 2)
    flip(cache, group, slot)
    lease.verify()  # reads no bytes
    cache.scrub(1 << 30)
    with pytest.raises(StaleLease, match="quarantined"):
        lease.verify()
    assert page_row(cache, group, slot)[PAGE_STATE] == PageState.QUARANTINED, "still pinned"
    check_sums(cache)
    lease.release()
    assert page_row(cache, group, slot)[PAGE_STATE] == PageState.FREE
    check_sums(cache)


def test_a_moved_pool(cache: CacheManager) -> None:
    assert cache.pools is not None
    cache.seal_topology()
    lease = cache.lease(cache.match(WANTED))
    lease.verify()
    cache.pools._storages["c16"] = cache.pools.storage("c16").clone()
    with pytest.raises(InvariantViolation, match="pool c16"):
        lease.verify()


def test_a_stale_plan_is_refused(cache: CacheManager) -> None:
    plan = cache.match(WANTED)
    flip(cache, "c4", slot_of(cache, WANTED, "c4", 0))
    cache.scrub(1 << 30)
    before = cache.digest()
    with pytest.raises(StaleLease):
        cache.lease(plan)
    assert cache.digest() == before


def test_a_bad_page_is_not_leased(cache: CacheManager) -> None:
    """The lease is of the next best plan."""
    flip(cache, "c4", slot_of(cache, WANTED, "c4", 4))
    lease = cache.lease(cache.match(WANTED))
    assert lease.plan.reused_tokens <= 64
    lease.verify()
    row = lease.id & 0xFFFF
    assert cache.tables.holders[row, HOLDER_BLOCKS] == len(lease.plan.blocks)
    assert cache.tables.holder_blocks[row, 0] == lease.plan.blocks[0, 0]


def test_nothing_to_lease(cache: CacheManager) -> None:
    before = cache.digest()
    with pytest.raises(ConfigError):
        cache.lease(cache.match(request("never seen", 60)))
    assert cache.digest() == before


def test_rows_run_out(cache: CacheManager) -> None:
    leases = [cache.lease(cache.match(WANTED)) for _ in range(cache.config.max_leases)]
    before = cache.digest()
    with pytest.raises(OutOfPages, match="lease row"):
        cache.lease(cache.match(WANTED))
    assert cache.digest() == before
    leases[0].release()
    cache.lease(cache.match(WANTED)).verify()
    for lease in leases[1:]:
        lease.verify()


def test_a_replay_is_leased_without_a_checkpoint(cache: CacheManager) -> None:
    flip(cache, "swa", slot_of(cache, WANTED, "swa"))
    cache.scrub(1 << 30)
    plan = cache.match(WANTED)
    assert plan.source == "replay"
    with cache.lease(plan) as lease:
        lease.verify()
        assert len(lease.plan.blocks) == 5
    check_sums(cache)


def test_a_suspended_block_can_be_leased(cache: CacheManager) -> None:
    wanted = request("paused", 60)
    sequence = cache.begin(cache.match(wanted))
    for end in (48, 54):
        cache.reserve([sequence.id], [end - sequence.position]).commit()
    suspended = sequence.suspend()
    plan = cache.match(wanted, suspended.position)
    assert plan.source == "suspended"
    lease = cache.lease(plan)
    lease.verify()
    partial = cache.tables.blocks.pages[plan.partial[0], part_of("c4")]
    assert page_row(cache, "c4", int(partial))[PAGE_STATE] == PageState.SEALED
    for number in range(15):
        serve(cache, request(f"pressure {number}", 90))
        lease.verify()
    assert cache.match(wanted, 54).source == "suspended"
    flip(cache, HISTORY[0], int(partial))
    cache.scrub(1 << 30)
    with pytest.raises(StaleLease):
        lease.verify()
    lease.release()
    check_sums(cache)


def test_a_manager_of_metadata_has_no_addresses() -> None:
    cache = memory_manager()
    wanted = request("text", 40)
    serve(cache, wanted)
    lease = cache.lease(cache.match(wanted))
    lease.verify()
    with pytest.raises(ConfigError, match="found none"):
        lease.state_data_ptrs  # noqa: B018

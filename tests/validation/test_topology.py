"""Static topology: sealed addresses are the pools', each step checks them, nothing else moves."""

import json

import pytest

from kvstrata import CacheManager, ConfigError, InvariantViolation, PoolSet
from kvstrata.core.events import EventType
from tests.face.support import memory_manager, prefill, request, serve

from .support import GROUPS, LAYOUT, WANTED, Log, filled, open_cache


def test_sealed_addresses_are_the_pools() -> None:
    cache = open_cache()
    assert cache.pools is not None
    log = Log(cache)
    topology = cache.seal_topology()
    assert list(topology.pointers) == GROUPS
    for name, at in topology.pointers.items():
        storage = cache.pools.storage(name)
        assert (at.address, at.stride) == (storage.data_ptr(), storage.stride(0))
        assert (at.slots, at.page_bytes) == tuple(storage.shape)
        for slot in (0, 1, at.slots - 1):
            assert at.page(slot) == storage[slot].data_ptr()
        for slot in (-1, at.slots):
            with pytest.raises(InvariantViolation, match="expected a slot"):
                at.page(slot)
    assert len(log.new(EventType.TOPOLOGY_SEALED)) == 1
    assert set(json.loads(json.dumps(topology.to_json()))) == set(GROUPS)


def test_work_goes_on_under_a_sealed_topology() -> None:
    """Evictions, checkpoints, forks and scrubs move no pool."""
    cache = filled()
    cache.seal_topology()
    for number in range(6):
        serve(cache, request(f"more {number}", 90), 20)
    sequence = prefill(cache, WANTED)
    sequence.fork().cancel()
    cache.scrub(1 << 20)
    cache.check_topology()
    sequence.finish()
    assert not [name for name in cache.stats().validation_failures if name.startswith("4/")]


@pytest.mark.parametrize("how", ["clone", "shorter", "view"])
def test_a_pool_that_is_another(how: str) -> None:
    cache = filled()
    assert cache.pools is not None
    cache.seal_topology()
    sequence = cache.begin(cache.match(request("new", 20)))
    storage = cache.pools.storage("swa")
    cache.pools._storages["swa"] = {
        "clone": storage.clone(),
        "shorter": storage[:-1],
        "view": storage.view(-1).view(storage.shape),
    }[how]
    with pytest.raises(InvariantViolation, match="pool swa"):
        cache.reserve([sequence.id], [1])
    for call in (sequence.finish, cache.check_integrity, lambda: cache.scrub(1)):
        with pytest.raises(InvariantViolation, match="mutates no more"):
            call()


def test_no_checkpoint_is_copied_into_a_pool_that_moved() -> None:
    cache = filled()
    assert cache.pools is not None
    cache.seal_topology()
    cache.pools._storages["swa"] = moved = cache.pools.storage("swa").clone()
    before = moved.clone()
    with pytest.raises(InvariantViolation, match="pool swa"):
        cache.begin(cache.match(WANTED))
    assert moved.equal(before)


def test_without_a_seal_nothing_is_checked() -> None:
    cache = filled()
    assert cache.pools is not None
    cache.pools._storages["swa"] = cache.pools.storage("swa").clone()
    cache.check_topology()
    serve(cache, request("new", 40))


def test_sealing_again_records_anew() -> None:
    cache = filled()
    assert cache.pools is not None
    cache.seal_topology()
    moved = cache.pools._storages["swa"] = cache.pools.storage("swa").clone()
    assert cache.seal_topology().pointers["swa"].address == moved.data_ptr()
    cache.check_topology()


def test_a_manager_of_metadata_has_none() -> None:
    cache = memory_manager()
    with pytest.raises(ConfigError, match="found none"):
        cache.seal_topology()
    cache.check_topology()


def test_pools_from_elsewhere_keep_their_addresses() -> None:
    """An engine may hand over pools it allocated: they are used where they are."""
    first = filled()
    pools = PoolSet.allocate(LAYOUT, dict(first.config.slots or {}))
    with CacheManager.open(LAYOUT, first.config, None, pools) as cache:
        assert cache.pools is pools
        pointers = cache.seal_topology().pointers
        assert all(at.address == pools.data_ptr(name) for name, at in pointers.items())
        serve(cache, WANTED)

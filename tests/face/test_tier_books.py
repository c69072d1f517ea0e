"""Managers of metadata alone with tiers, and the rows and leases that loads and spills take."""

import threading

import pytest

from kvstrata import CacheManager, ConfigError, Deferred
from kvstrata.core.events import EventType
from kvstrata.core.planner import Rates
from tests.cases.support import asked, compute, text
from tests.face.support import memory_manager
from tests.face.support import request as plain
from tests.face.tiered import (
    FULL,
    LAYOUT,
    SIZE,
    begun,
    corner,
    hook,
    peek,
    served,
    settled,
    stored,
    tiering_of,
    told,
    until,
)

SLOW = Rates(tokens_per_s=100, bytes_per_s=10**9)
BLOCKS = 9


def prompt(name: str, blocks: int = BLOCKS) -> object:
    return text((name, blocks * SIZE + 3))


def serve_books(cache: CacheManager, name: str) -> int:
    sequence = cache.begin_when_ready(asked(prompt(name)))
    compute(cache, sequence)
    sequence.finish()
    return sequence.plan.resume_at


def test_books_spill_and_load() -> None:
    """Nothing is written anywhere; what was evicted is planned and found as if it were stored."""
    with corner() as place:
        with place.opened(pools=None, rates=SLOW, blocks=24) as cache:
            assert serve_books(cache, "a") == 0
            settled(cache)
            assert tiering_of(cache).stats().stored["disk"] == {"blocks": BLOCKS, "checkpoints": 1}
            for name in "bcde":
                assert serve_books(cache, name) == 0
            plan = cache.match(asked(prompt("a")))
            assert (plan.source, plan.resume_at) == ("stored", BLOCKS * SIZE)
            assert serve_books(cache, "a") == BLOCKS * SIZE
            assert tiering_of(cache).stats().loads == {"begun": 1, "whole": 1}
            (begun_, ended) = told(cache, EventType.LOAD_BEGUN, EventType.LOAD_ENDED)
            assert BLOCKS <= begun_["objects"] == ended["objects"] <= BLOCKS + 1
            assert not (place.root / "disk").exists()
            assert tiering_of(cache).stats().workers is None
            assert not cache.prefetch(asked(prompt("a")))
        with place.opened(pools=None, rates=SLOW, blocks=24) as cache:
            assert serve_books(cache, "e") == BLOCKS * SIZE


def test_no_more_loads_than_configured_own_pages() -> None:
    """The others wait for their turn, in their order, and take no row from sequences."""
    with corner(FULL) as place:
        names = "abcdef"
        stored(place, *(prompt(name, 2) for name in names), rates=SLOW)
        tiers = place.tiers(max_loads=2)
        with place.opened("another", tiers=tiers, rates=SLOW) as cache:
            store, gate = hook(cache), threading.Event()
            store.hooks["read"] = lambda _: gate.wait(20)
            wanted = {name: asked(prompt(name, 2)) for name in names}
            for _ in range(2):
                for one in wanted.values():
                    with pytest.raises(Deferred):
                        cache.begin(cache.match(one))
            assert tiering_of(cache).stats().loads_in_flight == 2
            with pytest.raises(Deferred, match="2 loads own pages") as caught:
                cache.begin(cache.match(wanted["f"]))
            assert (caught.value.limit, caught.value.ahead) == ("loads", 3)
            running = [
                cache.begin(cache.match(asked(prompt(f"cold {number}", 1)))) for number in range(4)
            ]
            for one in running:
                one.cancel()
            gate.set()
            order = []
            while wanted:
                for name, one in list(wanted.items()):
                    try:
                        sequence = cache.begin(cache.match(one))
                    except Deferred:
                        continue
                    assert sequence.plan.resume_at == 2 * SIZE
                    sequence.cancel()
                    order.append(name)
                    del wanted[name]
                tiering_of(cache).wait(0.01)
            assert sorted(order[:2]) == ["a", "b"]
            # Two at once: a slow one lets the others pass through the second place, in their order.
            assert all(order.index(name) >= turn - 1 for turn, name in enumerate(names))
            loads = tiering_of(cache).stats().loads
            assert (loads["begun"], loads["whole"]) == (6, 6)


def test_a_load_without_room_waits_for_it() -> None:
    """All pages are taken by a sequence that runs: the stored prefix is not given up for that."""
    with corner(FULL) as place:
        stored(place, prompt("a", 4), rates=SLOW, blocks=10)
        with place.opened("another", rates=SLOW, blocks=10, admission=None) as cache:
            other = cache.begin(cache.match(asked(text(("other", 8 * SIZE)))))
            compute(cache, other)
            wanted = asked(prompt("a", 4))
            with pytest.raises(Deferred, match="no room for a load"):
                cache.begin(cache.match(wanted))
            other.finish()
            sequence = cache.begin_when_ready(wanted)
            assert sequence.plan.resume_at == 4 * SIZE
            sequence.cancel()


def test_a_load_that_never_has_room_is_done_without() -> None:
    """As long as somebody runs it waits a while; then it begins cold or says what is missing."""
    with corner(FULL) as place:
        stored(place, prompt("a", 4), rates=SLOW, blocks=10)
        with place.opened("another", rates=SLOW, blocks=10, admission=None) as cache:
            other = cache.begin(cache.match(asked(text(("other", 8 * SIZE)))))
            compute(cache, other)
            wanted = asked(prompt("a", 4))
            limits = []
            while len(limits) < 100:
                try:
                    sequence = cache.begin(cache.match(wanted))
                    break
                except Deferred as error:
                    limits.append(error.limit)
            assert set(limits) == {"load"}
            assert 10 < len(limits) < 40
            assert sequence.plan.is_cold
            sequence.cancel()
            other.cancel()


def test_spills_take_no_lease_from_the_engine() -> None:
    with corner(FULL) as place, place.opened(max_leases=1) as cache:
        store, gate = hook(cache), threading.Event()
        store.hooks["put"] = lambda _: gate.wait(20)
        for name in "abcdef":
            served(cache, prompt(name, 2))
        cache.apply_completions()
        until(lambda: store.count("put") > 0)
        lease = cache.lease(cache.match(asked(prompt("a", 2))))
        gate.set()
        settled(cache)
        lease.release()
        assert cache.stats().leases == 0


def test_settling_says_whether_it_came() -> None:
    with corner(FULL) as place, place.opened() as cache:
        assert cache.settle_tiers(0.0), "nothing waits"
        store, gate = hook(cache), threading.Event()
        store.hooks["put"] = lambda _: gate.wait(20)
        served(cache, prompt("a", 2))
        assert not cache.settle_tiers(0.05)
        gate.set()
        assert cache.settle_tiers(10.0)
        assert len(told(cache, EventType.OBJECT_STORED)) == 2
        assert not cache.stats().leases


def test_beginning_when_ready_gives_up_in_time() -> None:
    with corner(FULL) as place:
        stored(place, prompt("a", 2), rates=SLOW)
        with place.opened(rates=SLOW) as cache:
            store, gate = hook(cache), threading.Event()
            store.hooks["read"] = lambda _: gate.wait(20)
            wanted = asked(prompt("a", 2))
            with pytest.raises(Deferred):
                cache.begin_when_ready(wanted, 0.1)
            gate.set()
            sequence = cache.begin_when_ready(wanted, 10.0)
            assert sequence.plan.resume_at == 2 * SIZE
            assert tiering_of(cache).stats().loads == {"begun": 1, "whole": 1}
            sequence.cancel()


def test_without_tiers_there_is_nothing_to_settle_or_prefetch() -> None:
    with memory_manager() as cache:
        assert cache.tier_stats() is None
        for call in (lambda: cache.prefetch(plain("a")), lambda: cache.settle_tiers(0.0)):
            with pytest.raises(ConfigError, match="expected a manager with tiers"):
                call()
        sequence = cache.begin_when_ready(plain("a"))
        sequence.cancel()


def test_a_checkpoint_alone_is_loaded_where_its_blocks_are_here() -> None:
    """The image was evicted, the blocks were not."""
    with corner(LAYOUT) as place, place.opened(rates=SLOW, images=10, blocks=100) as cache:
        served(cache, prompt("a"))
        settled(cache)
        for number in range(8):
            served(cache, prompt(f"b{number}", 1))
        settled(cache)
        plan = cache.match(asked(prompt("a")))
        assert plan.load is not None
        assert (plan.load.num_blocks, plan.load.checkpoint_at) == (0, BLOCKS * SIZE)
        store = hook(cache)
        sequence = begun(cache, prompt("a"))
        assert sequence.plan.resume_at == BLOCKS * SIZE
        assert store.count("read") == 1
        sequence.cancel()
        assert peek(cache, prompt("a")) == BLOCKS * SIZE

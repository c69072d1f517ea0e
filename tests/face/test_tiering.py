"""Policies of the tiers, loads ahead and joined, and what happens to loads nobody wants."""

import threading

import pytest

from kvstrata import CacheManager, Deferred
from kvstrata.core.events import EventType
from kvstrata.core.planner import Rates
from kvstrata.core.words import META_REPLAY_TOKENS
from tests.cases.support import asked, check_hit, compute
from tests.face.support import pages_in
from tests.face.tiered import (
    FULL,
    SIZE,
    begun,
    corner,
    hook,
    peek,
    served,
    settled,
    stored,
    text,
    tiering_of,
    told,
    until,
)

BLOCKS = 9
PROMPT = text(("p", BLOCKS * SIZE + 3))
SLOW = Rates(tokens_per_s=100, bytes_per_s=10**9)
"""A machine that had rather load than compute."""


def positions(cache: CacheManager, checkpoint: int) -> list[int]:
    """Where the objects that were stored end, in tokens."""
    events = told(cache, EventType.OBJECT_STORED)
    return sorted({one["position"] for one in events if one["checkpoint"] == checkpoint})


POLICIES = {
    "full": [SIZE * block for block in range(1, BLOCKS + 1)],
    "every:48": [48, 96, 144],
    "ends": [144],
    "none": [],
}


@pytest.mark.parametrize("policy", POLICIES)
def test_which_checkpoints_are_stored(policy: str) -> None:
    """And where a restart resumes: without any it computes the window before the end again."""
    with corner() as place:
        tiers = place.tiers(checkpoints=policy)
        with place.opened(tiers=tiers) as cache:
            served(cache, PROMPT)
            settled(cache)
            assert positions(cache, 0) == POLICIES["full"]
            assert positions(cache, 1) == POLICIES[policy]
            window = cache.arena.item(META_REPLAY_TOKENS)
        with place.opened(tiers=tiers) as cache:
            end = BLOCKS * SIZE
            sequence = begun(cache, PROMPT)
            if POLICIES[policy]:
                assert (sequence.plan.source, sequence.plan.resume_at) == ("checkpoint", end)
            else:
                assert sequence.plan.source == "replay"
                assert sequence.plan.resume_at == (end - window) // SIZE * SIZE
                assert sequence.plan.reused_tokens == end
            compute(cache, sequence)
            sequence.finish()
            # A branch off the middle: at a stored checkpoint before it, where there is one.
            branch = text(("p", 7 * SIZE), ("q", 40))
            begins = [at for at in POLICIES[policy] if at <= 7 * SIZE]
            least = max([*begins, (7 * SIZE - window) // SIZE * SIZE])
            assert served(cache, branch) >= least


@pytest.mark.parametrize("spill", ["seal", "evict", "never"])
def test_when_blocks_are_stored(spill: str) -> None:
    """As they are sealed; before they are evicted, when few pages are free; or not at all."""
    prompts = [text((f"p{number}", 3 * SIZE + 1)) for number in range(12)]
    with corner(FULL) as place:
        tiers = place.tiers(spill=spill)
        with place.opened(blocks=20, tiers=tiers) as cache:
            served(cache, prompts[0])
            settled(cache)
            assert len(place.files()) == (3 if spill == "seal" else 0)
            for tokens in prompts[1:]:
                served(cache, tokens)
                settled(cache)
            found = len(place.files())
            assert {"seal": found == 36, "evict": 16 <= found <= 36, "never": found == 0}[spill]
            cache.check_integrity()
            if spill == "evict":  # what is gone from the device is below it
                assert [peek(cache, tokens) for tokens in prompts] == 12 * [3 * SIZE]
        with place.opened("reader", blocks=20, tiers=place.tiers(spill="never")) as cache:
            kept = [peek(cache, tokens) for tokens in prompts]
            assert sum(kept) // SIZE == found


def test_a_tier_that_takes_nothing_is_not_asked_at_every_call() -> None:
    """Few pages are free and the disk is full: the log does not fill with spills in vain."""
    with corner(FULL) as place, place.opened(blocks=16, tiers=place.tiers(spill="evict")) as cache:
        from kvstrata.core.events import Reason
        from kvstrata.tiers.store import StoreFault

        def full(_: str) -> None:
            raise StoreFault(Reason.STORE_FULL, "no space", True)

        store = hook(cache)
        store.hooks["put"] = full
        for number in range(30):
            served(cache, text((f"p{number}", 3 * SIZE + 1)))
            until(lambda: not tiering_of(cache).workers.stats().running["spill"])
            cache.apply_completions()
        assert store.count("put") <= 4
        assert cache.stats().events["spill_begun"] <= 4
        assert tiering_of(cache).stats().tiers["disk"]["full"]


def test_prefetch_loads_what_a_request_will_need() -> None:
    with corner() as place:
        stored(place, PROMPT)
        with place.opened() as cache:
            wanted = asked(PROMPT)
            assert cache.prefetch(wanted)
            settled(cache)
            assert not cache.prefetch(wanted), "it is here"
            assert pages_in(cache, "full") == {"free": 40 - BLOCKS, "sealed_pinned": BLOCKS}
            sequence = cache.begin(cache.match(wanted))
            check_hit(cache, sequence)
            assert sequence.plan.resume_at == BLOCKS * SIZE
            assert tiering_of(cache).stats().loads == {"begun": 1, "whole": 1}
            sequence.cancel()
            cache.apply_completions()
            assert cache.stats().sequences == 0
            assert pages_in(cache, "full") == {"free": 40 - BLOCKS, "sealed_idle": BLOCKS}
            assert not cache.prefetch(asked(text(("unknown", 50))))


def test_prefetch_asks_every_tier_and_not_only_folders() -> None:
    """Nothing is known here of what another engine stored, and there is no catalogue."""
    with corner() as place:
        stored(place, PROMPT, tiers=place.tiers(catalogue=""))
        with place.opened("another", tiers=place.tiers(catalogue="")) as cache:
            assert cache.match(asked(PROMPT)).is_cold
            wanted = asked(PROMPT)
            assert cache.prefetch(wanted)
            settled(cache)
            assert cache.match(wanted).resume_at == BLOCKS * SIZE


def test_requests_join_one_load() -> None:
    """Four wait for it, each begins, and every object was read once."""
    with corner() as place:
        stored(place, PROMPT)
        with place.opened() as cache:
            store, gate = hook(cache), threading.Event()
            store.hooks["read"] = lambda _: gate.wait(10)
            wanted = [asked(text(("p", BLOCKS * SIZE), (name, 3))) for name in "abcd"]
            for one in wanted:
                with pytest.raises(Deferred):
                    cache.begin(cache.match(one))
            gate.set()
            running = [cache.begin_when_ready(one) for one in wanted]
            for sequence in running:
                check_hit(cache, sequence)
                assert sequence.plan.resume_at == BLOCKS * SIZE
            loads = tiering_of(cache).stats().loads
            assert loads == {"begun": 1, "whole": 1, "joined": 3}
            assert store.count("read") == BLOCKS + 1
            for sequence in running:
                sequence.cancel()
            assert cache.stats().sequences == 0

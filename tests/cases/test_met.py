"""Cases MET: what counters say of hits."""

import numpy as np
import pytest

from kvstrata import CacheManager
from kvstrata.core.events import EventType
from kvstrata.storage import BadPage
from tests.cases.support import Tokens, compute, layout_of
from tests.cases.tallied import read_all, tallied
from tests.face.tiered import Pools, asked, corner, served, stored, text, told

SOURCES = ("device_tokens", "tier_tokens", "suspended_tokens", "computed_tokens")


def test_met_01_tokens_found_again_after_preemption_are_no_hits() -> None:
    """260 prompts that share nothing; 80 of them preempted and resumed: no hit, all the same."""
    with corner(layout_of(16)) as place, place.opened(blocks=900, tiers=None) as cache:
        with tallied(cache) as follower:
            for number in range(260):
                tokens = text((f"random {number}", 40))
                sequence = cache.begin(cache.match(asked(tokens)))
                cache.reserve([sequence.id], [40]).commit()
                if number < 80:
                    suspended = sequence.suspend()
                    sequence = cache.resume(suspended, np.append(tokens, np.int32(1)))
                    assert sequence.resumed_at == 40
                sequence.finish()
            read_all(follower, cache)
            totals = follower.tally.totals
        assert totals["requests"] == 340
        assert totals["hits"] == totals["device_tokens"] == totals["tier_tokens"] == 0
        assert totals["suspended_tokens"] == 80 * 40
        assert totals["computed_tokens"] == 260 * 40 + 80
        assert sum(totals[name] for name in SOURCES) == totals["prompt_tokens"]


@pytest.mark.parametrize("pools", ["private", None])
def test_met_03_a_tier_is_asked_for_the_remainder_only(pools: Pools) -> None:
    """1000 tokens, 600 of them on the device and 200 in a tier."""
    layout = layout_of(8)
    whole = text(("k", 1000))
    with corner(layout) as place:
        stored(place, whole[:801], blocks=140, pools=pools)
        with place.opened(blocks=140, pools=pools) as cache:
            if pools is None:  # pages that have no bytes are not lost with them
                drop_from(cache, whole, 75)
            else:
                served(cache, whole[:601], max_resume=0)
            with tallied(cache) as follower:
                before = dict(follower.tally.totals)
                assert served(cache, whole) == 800
                read_all(follower, cache)
                after = follower.tally.totals
        found = {name: after[name] - before[name] for name in after}
    assert found["requests"] == found["hits"] == 1
    assert found["device_query_tokens"] == 1000
    assert found["device_tokens"] == 600
    assert found["tier_query_tokens"] == 400
    assert found["tier_tokens"] == 200
    assert found["computed_tokens"] == 200
    assert sum(found[name] for name in SOURCES) == found["prompt_tokens"] == 1000


def drop_from(cache: CacheManager, tokens: Tokens, block: int) -> None:
    """Withdraw a block and what hangs below it; what a tier has of it stays."""
    slot = cache.sealed_pages(asked(tokens), block)["full"]
    cache.quarantine(BadPage(0, slot, cache.page_generation("full", slot), 1, 2))


def test_what_a_tier_gave_back_to_a_suspended_request_is_its_own() -> None:
    """Suspended, its pages lost with the engine, resumed from a tier: no hit of anybody's."""
    layout = layout_of(16)
    tokens = text(("k", 65))
    with corner(layout) as place:
        stored(place, tokens)
        with place.opened() as cache:
            request = asked(tokens).continued(tokens, 48)
            sequence = cache.begin_when_ready(request)
            assert sequence.resumed_at == 64
            compute(cache, sequence)
            sequence.finish()
            event = told(cache, EventType.REQUEST_RESUMED)[-1]
            assert (event["kept"], event["loaded"], event["resume_at"]) == (48, 16, 64)
            assert (event["prompt"], event["reused"], event["source"]) == (65, 64, 1)

"""A sequence that stands on a page found bad publishes nothing more, and nobody else suffers."""

import pytest

from kvstrata import CacheManager, Sequence, StaleLease
from kvstrata.core.events import EventType
from kvstrata.core.words import HOLDER_TAINTED
from tests.face.support import check_sums, hit, pages_in, prefill, request, serve

from .support import GROUPS, HISTORY, WANTED, Log, flip, open_cache, slot_of

LONG = request("damaged", 200)
OTHER = request("other", 120)


@pytest.fixture
def cache() -> CacheManager:
    """A prompt of 90 tokens is here, with a checkpoint at 80; so is another text."""
    cache = open_cache()
    serve(cache, WANTED)
    serve(cache, OTHER)
    return cache


def on_wanted(cache: CacheManager) -> Sequence:
    """A sequence that began on the checkpoint at 80 of a prompt that goes on."""
    sequence = cache.begin(cache.match(LONG))
    assert (sequence.plan.source, sequence.resumed_at) == ("checkpoint", 80)
    return sequence


def is_tainted(cache: CacheManager, sequence: Sequence) -> bool:
    return bool(cache.tables.holders[sequence.id & 0xFFFF, HOLDER_TAINTED])


def scrub(cache: CacheManager, bad: int) -> None:
    assert cache.scrub(1 << 30).bad == bad
    check_sums(cache)


def to_end(cache: CacheManager, sequence: Sequence, *ends: int) -> None:
    for end in ends:
        cache.reserve([sequence.id], [end - sequence.position]).commit()


@pytest.mark.parametrize("group", GROUPS)
def test_nothing_is_published(cache: CacheManager, group: str) -> None:
    """Through a block it holds, or through the checkpoint it began on."""
    sequence = on_wanted(cache)
    flip(cache, group, slot_of(cache, WANTED, group, 2))
    scrub(cache, 1)
    assert is_tainted(cache, sequence)
    before = cache.match(LONG).history_tokens
    to_end(cache, sequence, 100, 144, 192, 200)
    assert cache.match(LONG).history_tokens == before, "no later block is found"
    assert cache.match(LONG).source != "checkpoint" or cache.match(LONG).resume_at < 80
    for token in range(24):
        cache.reserve([sequence.id], [1]).commit(tokens=[token])
    log = Log(cache)
    indexed = cache.stats().blocks["indexed"], cache.stats().images["indexed"]
    held = {each: len(cache.block_slots(sequence, each)) for each in HISTORY}
    assert held["c4"] == 14
    sequence.finish()
    assert (cache.stats().blocks["indexed"], cache.stats().images["indexed"]) == indexed
    freed = [event for event, _ in log.new(EventType.PAGE_FREED) if event["group"] == 0]
    assert len(freed) >= 9, "the pages it computed are freed at once"
    check_sums(cache)
    for each in GROUPS:
        assert set(pages_in(cache, each)) <= {"free", "sealed_idle"}
    assert hit(cache, OTHER) == (112, 112), "the other text is untouched"
    serve(cache, LONG)
    assert hit(cache, LONG) == (192, 192), "computed again, it is good again"


def test_others_are_untouched(cache: CacheManager) -> None:
    other = cache.begin(cache.match(request("other", 200)))
    beside = cache.begin(cache.match(request("damaged", 40)))
    assert beside.plan.source == "cold" or beside.plan.reused_tokens <= 32
    sequence = on_wanted(cache)
    flip(cache, "c4", slot_of(cache, WANTED, "c4", 4))
    scrub(cache, 1)
    assert [is_tainted(cache, each) for each in (sequence, other, beside)] == [True, False, False]
    to_end(cache, other, 144, 192, 200)
    other.finish()
    assert hit(cache, request("other", 200)) == (192, 192)
    to_end(cache, beside, 40)
    beside.finish()
    assert cache.match(WANTED).history_tokens == 64, "what lies before the bad block is good"


@pytest.mark.parametrize("group", ["c4", "swa"])
def test_a_fork_is_refused(cache: CacheManager, group: str) -> None:
    sequence = on_wanted(cache)
    child = sequence.fork()
    flip(cache, group, slot_of(cache, WANTED, group, 2))
    scrub(cache, 1)
    before = cache.digest()
    with pytest.raises(StaleLease, match="withdrawn"):
        sequence.fork()
    assert cache.digest() == before
    if group == "c4":
        with pytest.raises(StaleLease, match="withdrawn"):
            child.fork()


@pytest.mark.parametrize("group", ["c4", "swa"])
def test_a_suspension_keeps_nothing(cache: CacheManager, group: str) -> None:
    sequence = on_wanted(cache)
    to_end(cache, sequence, 101)
    flip(cache, group, slot_of(cache, WANTED, group, 2))
    scrub(cache, 1)
    indexed = cache.stats().blocks["indexed"], cache.stats().images["indexed"]
    suspended = sequence.suspend()
    assert (suspended.position, suspended.kept) == (101, False)
    assert (cache.stats().blocks["indexed"], cache.stats().images["indexed"]) <= indexed
    check_sums(cache)
    again = cache.resume(suspended)
    assert again.plan.source != "suspended"
    assert again.resumed_at <= (32 if group == "c4" else 96)
    assert not is_tainted(cache, again)


def test_what_is_in_flight_is_not_published_either(cache: CacheManager) -> None:
    sequence = on_wanted(cache)
    step = cache.reserve([sequence.id], [64])
    flip(cache, "c16", slot_of(cache, WANTED, "c16", 0))
    scrub(cache, 1)
    step.commit()
    assert cache.match(LONG).history_tokens == 0
    sequence.cancel()
    check_sums(cache)
    assert cache.stats().blocks["indexed"] == 7, "those of the other text"


def test_another_begin_finds_it(cache: CacheManager) -> None:
    """Not the scrub: a second request looks at the same pages, and the first is tainted by it."""
    sequence = on_wanted(cache)
    flip(cache, "c4.index", slot_of(cache, WANTED, "c4.index", 1))
    second = cache.begin(cache.match(WANTED))
    assert second.resumed_at < 80
    assert is_tainted(cache, sequence)
    assert not is_tainted(cache, second)
    serve(cache, WANTED)


def test_taint_does_not_outlive_the_row(cache: CacheManager) -> None:
    sequence = on_wanted(cache)
    flip(cache, "c4", slot_of(cache, WANTED, "c4", 0))
    scrub(cache, 1)
    row = sequence.id & 0xFFFF
    sequence.cancel()
    fresh = prefill(cache, request("fresh", 60))
    assert fresh.id & 0xFFFF == row
    assert not is_tainted(cache, fresh)
    fresh.finish()
    assert hit(cache, request("fresh", 60)) == (48, 48)


def test_a_lease_is_no_longer_good(cache: CacheManager) -> None:
    lease = cache.lease(cache.match(WANTED))
    lease.verify()
    flip(cache, "c4", slot_of(cache, WANTED, "c4", 0))
    scrub(cache, 1)
    with pytest.raises(StaleLease):
        lease.verify()
    lease.release()
    check_sums(cache)

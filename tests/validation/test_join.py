"""Joining: who wants a prefix that another is computing waits for it, and resumes at its end."""

from dataclasses import replace

import pytest

from kvstrata import CacheManager, Deferred, Request, Sequence
from kvstrata.core.events import EventType, Reason
from tests.face.support import check_sums, config, request, serve

from .support import LAYOUT, WANTED, Log, filled, flip, open_cache, slot_of

BODY = request("shared", 200)
"""The prompt that is being computed; its last whole block ends at 192."""


@pytest.fixture
def cache() -> CacheManager:
    return open_cache(max_sequences=4)


def begin(cache: CacheManager, wanted: Request) -> Sequence:
    return cache.begin(cache.match(wanted))


def to_end(cache: CacheManager, sequence: Sequence, end: int) -> None:
    """Compute up to a position, in steps that end where checkpoints are wanted."""
    while sequence.position < end:
        ends = [at for at in (*sequence.captures, end) if at > sequence.position]
        cache.reserve([sequence.id], [min(ends) - sequence.position]).commit()


def waits(cache: CacheManager, wanted: Request) -> Deferred:
    with pytest.raises(Deferred) as caught:
        begin(cache, wanted)
    return caught.value


@pytest.mark.parametrize("length", [100, 130, 200, 230])
def test_it_waits_and_resumes(cache: CacheManager, length: int) -> None:
    running = begin(cache, BODY)
    to_end(cache, running, 64)
    wanted = request("shared", length, join=True)
    joined = min(length - 1, 200) // 16 * 16
    plan = cache.match(wanted)
    assert plan.join is not None
    assert (plan.join.sequence, plan.join.tokens) == (running.id, joined)
    assert plan.join.seconds == pytest.approx((joined - 64) / 10_000)
    log = Log(cache)
    assert waits(cache, wanted).retry_after_s == plan.join.seconds
    ((event, _),) = log.new(EventType.ADMISSION_DEFERRED)
    assert event["reason"] == Reason.JOINING
    assert cache.stats().sequences == 1
    to_end(cache, running, 200)
    sequence = begin(cache, wanted)
    assert (sequence.plan.source, sequence.resumed_at) == ("checkpoint", joined)
    check_sums(cache)
    sequence.finish()
    running.finish()


def test_who_does_not_ask_does_not_wait(cache: CacheManager) -> None:
    running = begin(cache, BODY)
    to_end(cache, running, 64)
    assert cache.match(request("shared", 150)).join is None
    begin(cache, request("shared", 150)).cancel()


def test_nothing_to_wait_for(cache: CacheManager) -> None:
    """Another text, another model, a sequence that is no further, or one that is past it all."""
    running = begin(cache, BODY)
    wanted = request("shared", 150, join=True)
    assert cache.match(wanted).join is None, "not one token of it is computed yet"
    to_end(cache, running, 64)
    assert cache.match(request("else", 150, join=True)).join is None
    assert cache.match(replace(wanted, model="other")).join is None
    assert cache.match(replace(wanted, tenant=b"other")).join is None
    assert cache.match(request("shared", 60, join=True)).join is None
    assert cache.match(wanted).join is not None
    to_end(cache, running, 200)
    assert cache.match(wanted).join is None


@pytest.mark.parametrize("how", ["finish", "cancel", "suspend"])
def test_the_one_it_waits_for_ends_early(cache: CacheManager, how: str) -> None:
    running = begin(cache, BODY)
    to_end(cache, running, 64)
    wanted = request("shared", 150, join=True)
    waits(cache, wanted)
    getattr(running, how)()
    sequence = begin(cache, wanted)
    assert sequence.plan.join is None
    to_end(cache, sequence, 150)
    check_sums(cache)
    sequence.finish()
    serve(cache, request("shared", 150))


def test_many_wait_for_one(cache: CacheManager) -> None:
    """None of them computes any of it; all resume at its end."""
    running = begin(cache, BODY)
    to_end(cache, running, 32)
    crowd = [request("shared", 200, join=True) for _ in range(3)]
    for wanted in crowd:
        waits(cache, wanted)
    to_end(cache, running, 200)
    resumed = [begin(cache, wanted).resumed_at for wanted in crowd]
    assert resumed == [192] * 3
    check_sums(cache)


def test_the_furthest_is_joined(cache: CacheManager) -> None:
    short = begin(cache, request("shared", 100))
    to_end(cache, short, 40)
    assert (plan := cache.match(request("shared", 200, join=True))).join is not None
    assert (plan.join.sequence, plan.join.tokens) == (short.id, 96)
    long = begin(cache, BODY)
    to_end(cache, long, 20)
    plan = cache.match(request("shared", 200, join=True))
    assert plan.join is not None
    assert (plan.join.sequence, plan.join.tokens) == (long.id, 192)


def test_a_tainted_one_is_not_joined() -> None:
    cache = filled()
    running = begin(cache, request("damaged", 200))
    to_end(cache, running, 100)
    wanted = request("damaged", 200, join=True)
    assert cache.match(wanted).join is not None
    flip(cache, "c4", slot_of(cache, WANTED, "c4", 0))
    cache.scrub(1 << 30)
    assert cache.match(wanted).join is None


def test_a_cancelled_one_is_not_joined(cache: CacheManager) -> None:
    running = begin(cache, BODY)
    to_end(cache, running, 64)
    step = cache.reserve([running.id], [16])
    running.cancel()
    assert cache.match(request("shared", 200, join=True)).join is None
    step.abort()
    check_sums(cache)


def test_its_own_checkpoints_are_taken_all_the_same(cache: CacheManager) -> None:
    """A waiter that needs a checkpoint elsewhere costs the one it waits for none of its own."""
    running = begin(cache, BODY)
    own = running.captures
    assert own
    to_end(cache, running, 32)
    waits(cache, request("shared", 100, join=True))
    assert set(own) < set(running.captures)
    to_end(cache, running, 200)
    assert cache.match(BODY).resume_at == 192
    assert cache.match(request("shared", 100)).resume_at == 96


def test_metadata_alone() -> None:
    settings = config({"ring_events": 4096}, slots={g.name: 40 for g in LAYOUT.groups})
    cache = CacheManager.open(LAYOUT, settings)
    running = begin(cache, BODY)
    to_end(cache, running, 64)
    waits(cache, request("shared", 150, join=True))
    assert 144 in running.captures

"""Admission at begin: promises for a whole life, answers with times, and nothing kept back."""

from collections.abc import Callable
from typing import Any

import pytest

from kvstrata import (
    AdmissionConfig,
    AdmissionDenied,
    CacheManager,
    Deferred,
    OutOfPages,
    Rates,
    Request,
    Sequence,
    StaleLease,
)
from kvstrata.core.events import EventType, Reason
from tests.face.support import check_sums, memory_manager, prefill, request, serve

from .support import WANTED, Log, filled, flip, open_cache, slot_of

GRANTED = EventType.ADMISSION_GRANTED
DEFERRED = EventType.ADMISSION_DEFERRED
DENIED = EventType.ADMISSION_DENIED
SLOTS = {"full": 21, "swa": 20}
"""20 blocks of 16 tokens."""


class Clock:
    """Stands still until told otherwise."""

    now_s = 100.0

    def monotonic(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr("kvstrata.admitting.time", clock)
    return clock


def open_small(**changes: Any) -> CacheManager:
    return memory_manager(slots=SLOTS, admission=AdmissionConfig(**changes))


def promised(cache: CacheManager) -> int:
    assert cache._beginner.admission_control is not None
    return cache._beginner.admission_control.admission.promised_blocks


def waiting(cache: CacheManager) -> int:
    assert cache._beginner.admission_control is not None
    return cache._beginner.admission_control.admission.waiting


def begin(cache: CacheManager, wanted: Request) -> Sequence:
    return cache.begin(cache.match(wanted))


def asks(name: str, blocks: int, **fields: Any) -> Request:
    """A request that takes so many blocks until its end, one of them for its prompt."""
    return request(name, 10, max_new_tokens=16 * blocks - 10, **fields)


def deferred(cache: CacheManager, wanted: Request) -> Deferred:
    tables = cache.arena[128:].copy()
    with pytest.raises(Deferred) as caught:
        begin(cache, wanted)
    assert (cache.arena[128:] == tables).all(), "it holds nothing while it waits"
    assert caught.value.retry_after_s > 0
    return caught.value


def denied(cache: CacheManager, wanted: Request) -> AdmissionDenied:
    with pytest.raises(AdmissionDenied) as caught:
        begin(cache, wanted)
    return caught.value


def test_deferred_until_there_is_room(clock: Clock) -> None:
    cache = open_small()
    log = Log(cache)
    first = begin(cache, asks("first", 15))
    assert promised(cache) == 15
    assert not log.new(GRANTED), "who need not wait is no event"
    wanted = asks("second", 8)
    assert deferred(cache, wanted).ahead == 0
    ((event, payload),) = log.new(DEFERRED)
    assert event["reason"] == Reason.BLOCKS
    assert (payload["blocks"], payload["waiting"]) == (8, 1)
    assert payload["wait_us"] > 0
    clock.now_s += 0.5
    deferred(cache, wanted)
    assert not log.new(DEFERRED), "it waits already"
    assert (waiting(cache), promised(cache)) == (1, 15)
    first.finish()
    clock.now_s += 0.25
    second = begin(cache, wanted)
    ((event, granted),) = log.new(GRANTED)
    assert granted["ticket"] == payload["ticket"]
    assert granted["wait_us"] == 750_000
    assert (waiting(cache), promised(cache)) == (0, 8)
    second.finish()
    assert promised(cache) == 0


def test_what_was_promised_is_there() -> None:
    """However the two take turns, neither is refused a block before its end."""
    cache = open_small()
    running = [begin(cache, asks(name, blocks)) for name, blocks in (("a", 12), ("b", 8))]
    log = Log(cache)
    for length in (192, 128):
        for sequence in running:
            while sequence.position < min(length, 192 if sequence is running[0] else 128):
                step = cache.reserve([sequence.id], [4])
                assert not step.refused.any()
                step.commit(tokens=[1, 2, 3, 4] if sequence.position >= 10 else [*_first(sequence)])
    assert [sequence.position for sequence in running] == [192, 128]
    deferred(cache, asks("c", 1))
    assert promised(cache) == 0, "every promise was used up"
    running[0].finish()
    begin(cache, asks("d", 5)).finish()
    assert log.new(DEFERRED)
    check_sums(cache)


def _first(sequence: Sequence) -> list[int]:
    """The next four tokens of a prompt of ten."""
    prompt = sequence.plan.request.tokens[sequence.position : sequence.position + 4].tolist()
    return (prompt + [7] * 4)[:4]


def test_never(clock: Clock) -> None:
    cache = open_small()
    log = Log(cache)
    assert denied(cache, asks("huge", 21)).retry_after_s is None
    ((event, payload),) = log.new(DENIED)
    assert (event["reason"], payload["blocks"]) == (Reason.NEVER_FITS, 21)
    begin(cache, asks("all", 20)).finish()
    assert (waiting(cache), promised(cache)) == (0, 0)


@pytest.mark.parametrize("whose", ["request", "config"])
def test_a_deadline(clock: Clock, whose: str) -> None:
    cache = open_small(deadline_s=1.0 if whose == "config" else None)
    begin(cache, asks("first", 20))
    wanted = asks("late", 1, deadline_s=1.0 if whose == "request" else None)
    assert deferred(cache, wanted).retry_after_s <= 1.0
    clock.now_s += 0.9
    deferred(cache, wanted)
    clock.now_s += 0.2
    log = Log(cache)
    denied(cache, wanted)
    ((event, _),) = log.new(DENIED)
    assert event["reason"] == Reason.DEADLINE
    assert waiting(cache) == 0


def test_who_will_not_wait(clock: Clock) -> None:
    cache = open_small()
    begin(cache, asks("first", 20))
    denied(cache, asks("at once", 1, deadline_s=0.0))
    assert waiting(cache) == 0


def test_a_full_queue(clock: Clock) -> None:
    cache = open_small(max_waiting=2)
    first = begin(cache, asks("first", 20))
    patient = [asks(f"patient {number}", 1) for number in range(2)]
    for wanted in patient:
        deferred(cache, wanted)
    log = Log(cache)
    assert denied(cache, asks("third", 1)).retry_after_s is not None
    ((event, _),) = log.new(DENIED)
    assert event["reason"] == Reason.QUEUE
    first.finish()
    for wanted in patient:
        begin(cache, wanted)


def test_first_come_first_served(clock: Clock) -> None:
    cache = open_small()
    first = begin(cache, asks("first", 18))
    elder, younger, small = asks("elder", 12), asks("younger", 12), asks("small", 2)
    assert deferred(cache, elder).ahead == 0
    assert deferred(cache, younger).ahead == 1
    begin(cache, small).finish()  # it fits, and takes nothing that the elder could have now
    first.finish()
    assert deferred(cache, younger).ahead == 1
    begin(cache, elder)
    deferred(cache, younger)


def test_an_aged_waiter_is_not_passed(clock: Clock) -> None:
    cache = open_small(ageing_s=1.0)
    begin(cache, asks("first", 18))
    elder = asks("elder", 12)
    deferred(cache, elder)
    begin(cache, asks("small", 1)).finish()
    clock.now_s += 1.5
    deferred(cache, elder)
    log = Log(cache)
    deferred(cache, asks("small too", 1))
    ((event, _),) = log.new(DEFERRED)
    assert event["reason"] == Reason.QUEUE


def _cancel_in_flight(cache: CacheManager, sequence: Sequence) -> None:
    step = cache.reserve([sequence.id], [5])
    sequence.cancel()
    assert promised(cache) == 12
    step.commit()


def _reported(cache: CacheManager, sequence: Sequence) -> None:
    cache.complete(sequence.id)
    begin(cache, asks("touch", 1)).finish()


@pytest.mark.parametrize(
    "end",
    [
        lambda cache, sequence: sequence.finish(),
        lambda cache, sequence: sequence.cancel(),
        lambda cache, sequence: sequence.suspend(),
        _cancel_in_flight,
        _reported,
    ],
    ids=["finish", "cancel", "suspend", "cancelled in flight", "reported complete"],
)
def test_a_promise_is_given_back(end: Callable[[CacheManager, Sequence], None]) -> None:
    cache = open_small()
    sequence = begin(cache, asks("one", 12))
    assert promised(cache) == 12
    end(cache, sequence)
    assert promised(cache) == 0
    begin(cache, asks("all", 20 - cache.stats().blocks["idle"]))


def test_a_begin_that_fails_gives_it_back() -> None:
    cache = open_small()
    running = [begin(cache, asks(f"row {number}", 2)) for number in range(4)]
    with pytest.raises(OutOfPages):
        begin(cache, asks("no row", 2))
    assert promised(cache) == 8
    running[0].finish()
    plan = cache.match(asks("plan", 2))
    begin(cache, asks("other", 2)).finish()
    cache.begin(plan)
    assert promised(cache) == 8


def test_a_stale_begin_gives_it_back() -> None:
    cache = open_cache()
    serve(cache, WANTED)
    plan = cache.match(WANTED)
    flip(cache, "c4", slot_of(cache, WANTED, "c4", 0))
    cache.scrub(1 << 30)
    with pytest.raises(StaleLease):
        cache.begin(plan)
    assert promised(cache) == 0


def test_only_what_is_not_here_is_asked_for() -> None:
    cache = open_small()
    wanted = request("text", 90, max_new_tokens=38)
    serve(cache, request("text", 90))
    sequence = begin(cache, wanted)
    assert len(sequence.plan.blocks) == 5
    assert promised(cache) == 3
    sequence.finish()


def test_pages_that_are_read_are_no_room() -> None:
    """What a plan pins is not counted among what can be evicted for it."""
    cache = open_small()
    serve(cache, request("text", 90))
    assert cache.stats().blocks["free"] == 15
    begin(cache, request("text", 90, max_new_tokens=15 * 16 - 10)).finish()
    wanted = request("text", 90, max_new_tokens=16 * 16 - 10)
    assert denied(cache, wanted).retry_after_s is None


def test_planned_anew_it_asks_anew(clock: Clock) -> None:
    """A bad page costs it its hit: for the whole prompt there is no room now."""
    cache = filled(admission=AdmissionConfig())
    reader, other = begin(cache, WANTED), begin(cache, asks("other", 25))
    flip(cache, "c4", slot_of(cache, WANTED, "c4", 0))
    wanted = request("damaged", 90, max_new_tokens=80)
    with pytest.raises(Deferred):
        begin(cache, wanted)
    assert promised(cache) == 26
    assert cache.match(wanted).is_cold
    assert cache.stats().sequences == 2
    other.finish()
    assert begin(cache, wanted).plan.is_cold
    assert promised(cache) == 12
    reader.finish()
    check_sums(cache)


def test_bytes_to_copy_are_paid_for(clock: Clock) -> None:
    """A checkpoint is copied at the rate allowed; who copies nothing does not wait for that."""
    cache = memory_manager(
        admission=AdmissionConfig(bytes_per_s=1280.0, burst_bytes=1280),
        rates=Rates(tokens_per_s=1, bytes_per_s=10**9),  # computing is dearer than any wait
    )
    serve(cache, request("text", 90))
    wanted = [request("text", 90) for _ in range(3)]
    log = Log(cache)
    begin(cache, wanted[0]).finish()
    assert len(log.new(GRANTED)) == 1
    assert deferred(cache, wanted[1]).retry_after_s == pytest.approx(1.0)
    ((event, payload),) = log.new(DEFERRED)
    assert (event["reason"], payload["load_bytes"]) == (Reason.BANDWIDTH, 1280)
    begin(cache, request("cold", 90)).finish()
    clock.now_s += 1.0
    begin(cache, wanted[1]).finish()
    deferred(cache, wanted[2])


def test_where_waiting_costs_more_it_is_computed_again(clock: Clock) -> None:
    """A second's wait for the copy, or 74 tokens more to compute: the cheaper is taken."""
    cache = memory_manager(admission=AdmissionConfig(bytes_per_s=1280.0, burst_bytes=1280))
    serve(cache, request("text", 90))
    assert begin(cache, request("text", 90)).resumed_at == 80
    second = begin(cache, request("text", 90))
    assert second.plan.source in ("replay", "cold")
    assert second.plan.load_bytes == 0


def test_without_a_cap_everybody_is_let_in() -> None:
    cache = memory_manager(slots=SLOTS, admission=None)
    running = [begin(cache, asks(f"row {number}", 20)) for number in range(4)]
    assert len({sequence.id for sequence in running}) == 4
    with pytest.raises(OutOfPages):
        begin(cache, asks("no row", 1))


def test_the_next_is_told_of_who_waits() -> None:
    cache = open_small()
    running = prefill(cache, asks("first", 20))
    queue = [asks(f"waits {number}", 20) for number in range(3)]
    for number, wanted in enumerate(queue):
        assert deferred(cache, wanted).ahead == number
    running.cancel()
    for wanted in queue:
        begin(cache, wanted).cancel()
    assert (waiting(cache), promised(cache)) == (0, 0)


def test_the_statistics_tell_who_waits(clock: Clock) -> None:
    cache = open_small()
    running = begin(cache, asks("running", 15))
    waits = asks("waits", 15)
    deferred(cache, waits)
    found = cache.stats().to_json()["admission"]
    assert (found["waiting"], found["num_deferred"]) == (1, 1)
    assert found["promised_blocks"] > 0
    running.finish()
    begin(cache, waits)
    assert cache.stats().to_json()["admission"]["waiting"] == 0
    assert memory_manager(admission=None).stats().admission is None

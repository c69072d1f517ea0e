"""Transfers: what they may touch is not freed; odd completions are counted and harmless."""

import threading

import pytest

from kvstrata import CacheManager, StaleLease, Transfer
from kvstrata.core.events import EventType, Reason
from tests.face.support import check_sums, hit, pages_in, prefill, request

from .support import GROUPS, WANTED, Log, open_cache

ANOMALY = EventType.COMPLETION_ANOMALY


@pytest.fixture
def cache() -> CacheManager:
    return open_cache()


def touch(cache: CacheManager) -> None:
    """A call at which what was reported complete takes effect."""
    cache.begin(cache.match(request("touch", 3))).cancel()


def draining(cache: CacheManager) -> int:
    return sum(pages_in(cache, group).get("draining", 0) for group in GROUPS)


def test_a_sequence_does_not_end_while_something_is_at_work(cache: CacheManager) -> None:
    sequence = prefill(cache, WANTED)
    transfer = cache.begin_transfer(sequence)
    for call in (sequence.finish, sequence.suspend, sequence.fork):
        before = cache.digest()
        with pytest.raises(StaleLease):
            call()
        assert cache.digest() == before
    transfer.complete()
    sequence.finish()
    assert hit(cache, WANTED) == (80, 80)
    check_sums(cache)


def test_steps_go_on_beside_a_transfer(cache: CacheManager) -> None:
    sequence = prefill(cache, WANTED)
    transfer = cache.begin_transfer(sequence)
    for token in range(5):
        cache.reserve([sequence.id], [1]).commit(tokens=[token])
    assert sequence.position == 95
    transfer.complete()
    touch(cache)
    check_sums(cache)
    sequence.finish()


def test_cancelled_pages_drain_until_the_last_has_ended(cache: CacheManager) -> None:
    sequence = prefill(cache, WANTED)
    transfers = [cache.begin_transfer(sequence) for _ in range(3)]
    step = cache.reserve([sequence.id], [2])
    sequence.cancel()
    assert draining(cache)
    step.abort()
    for transfer in transfers:
        touch(cache)
        assert draining(cache)
        assert cache.stats().sequences == 1
        transfer.complete()
    touch(cache)
    assert not draining(cache)
    assert cache.stats().sequences == 0
    check_sums(cache)


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_any_order_of_completion(cache: CacheManager, order: tuple[int, ...]) -> None:
    sequences = [prefill(cache, request(f"text {number}", 50)) for number in range(3)]
    transfers = [cache.begin_transfer(sequence) for sequence in sequences]
    for sequence in sequences:
        sequence.cancel()
    for number in order:
        transfers[number].complete()
    touch(cache)
    assert not draining(cache)
    assert cache.stats().sequences == 0
    check_sums(cache)


def test_from_other_threads(cache: CacheManager) -> None:
    sequence = prefill(cache, WANTED)
    transfers = [cache.begin_transfer(sequence) for _ in range(16)]
    sequence.cancel()
    threads = [threading.Thread(target=transfer.complete) for transfer in transfers]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    touch(cache)
    assert cache.stats().sequences == 0
    assert not cache.stats().completion_anomalies
    check_sums(cache)


def test_anomalies_are_counted_logged_and_harmless(cache: CacheManager) -> None:
    log = Log(cache)
    sequence = prefill(cache, WANTED)
    transfer = cache.begin_transfer(sequence)
    transfer.complete()
    transfer.complete()
    ghost, ended = 77 << 16 | 0xFFFF, prefill(cache, request("ended", 20))
    ended.finish()
    for identity in (ghost, ended.id, 0, 1 << 50 | 3, -5):
        cache.complete(identity)
    touch(cache)
    counted = {"duplicate_completion": 1, "ghost_completion": 1, "late_completion": 4}
    assert cache.stats().completion_anomalies == counted
    reasons = [Reason(event["reason"]).name.lower() for event, _ in log.new(ANOMALY)]
    assert sorted(reasons) == sorted(name for name in counted for _ in range(counted[name]))
    check_sums(cache)
    sequence.finish()
    assert hit(cache, WANTED) == (80, 80)


def test_a_sequence_may_be_reported_complete(cache: CacheManager) -> None:
    """It ends as if it had been finished: its end becomes a checkpoint."""
    sequence = prefill(cache, WANTED)
    for token in range(30):
        cache.reserve([sequence.id], [1]).commit(tokens=[token])
    cache.complete(sequence.id)
    touch(cache)
    with pytest.raises(StaleLease):
        sequence.position  # noqa: B018
    assert cache.stats().sequences == 0
    cache.complete(sequence.id)
    touch(cache)
    assert cache.stats().completion_anomalies == {"late_completion": 1}
    check_sums(cache)


def test_a_sequence_reported_complete_while_its_step_runs(cache: CacheManager) -> None:
    """It disturbs nobody's call; it ends once nothing is in flight for it."""
    sequence, other = prefill(cache, WANTED), prefill(cache, request("other", 40))
    step = cache.reserve([sequence.id], [1])
    transfer = cache.begin_transfer(other)
    cache.complete(sequence.id)
    transfer.complete()
    touch(cache)
    other.finish()
    assert cache.stats().sequences == 1
    step.commit(tokens=[1])
    touch(cache)
    assert cache.stats().sequences == 0
    check_sums(cache)


def test_a_cancelled_sequence_reported_complete(cache: CacheManager) -> None:
    sequence, other = prefill(cache, WANTED), prefill(cache, request("other", 40))
    step, transfer = cache.reserve([sequence.id], [1]), cache.begin_transfer(other)
    sequence.cancel()
    cache.complete(sequence.id)
    transfer.complete()
    touch(cache)
    assert cache.stats().completion_anomalies == {"late_completion": 1}
    other.finish()
    step.abort()
    assert cache.stats().sequences == 0
    check_sums(cache)


def test_closing_waits_for_nothing() -> None:
    cache = open_cache()
    sequence = prefill(cache, WANTED)
    transfer: Transfer = cache.begin_transfer(sequence)
    cancelled = prefill(cache, request("cancelled", 40))
    cache.begin_transfer(cancelled)
    cancelled.cancel()
    cache.close()
    transfer.complete()
    assert cache.stats().sequences == 0

"""Work larger than a quarter of the ring is cut into several calls, each whole."""

import os
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from kvstrata import CacheManager, Sequence
from kvstrata.caller import CoreCaller
from kvstrata.core.events import EVENT_DTYPE, LAST_OF_CALL
from kvstrata.core.room import MORE
from kvstrata.eventstore.log import read_events
from tests.eventstore.test_kill import in_child

from .support import Place, check_sums, hit, memory_manager, request, serve

SIZES: dict[str, Any] = {
    "slots": {"full": 700, "swa": 20},
    "max_sequences": 2,
    "max_tokens_per_sequence": 9600,
}
SMALL, BIG = 1024, 1 << 16
LONG = request("long", 8000)
OTHER = request("other", 9000)


@dataclass(frozen=True)
class Outcome:
    """What can be seen of a history, whatever the size of the ring."""

    resumed_at: int
    hits: list[tuple[int, int]]
    pools: Any
    blocks: dict[str, int]
    images: dict[str, int]
    events: dict[str, int]
    slots: list[int]


def long_work(cache: CacheManager) -> Outcome:
    """Prefills of 500 blocks in one step, aborts, cancels, and evictions of as many."""
    sequence = prefill_in_one(cache, 8000)
    slots = cache.block_slots(sequence, "full").tolist()
    sequence.finish()
    step, second = reserve_all(cache, OTHER.tokens.size)  # evicts most of the first one
    step.abort()
    second.cancel()
    check_sums(cache)
    step, second = reserve_all(cache, OTHER.tokens.size)
    second.cancel()
    step.commit()
    resumed_at = serve(cache, LONG)
    serve(cache, OTHER, num_output=20)
    check_sums(cache)
    stats = cache.stats()
    hits = [hit(cache, wanted) for wanted in (LONG, OTHER, request("long", 4000))]
    return Outcome(resumed_at, hits, stats.pools, stats.blocks, stats.images, stats.events, slots)


def prefill_in_one(cache: CacheManager, length: int) -> Sequence:
    sequence = cache.begin(cache.match(request("long", length)))
    cache.reserve([sequence.id], [length]).commit()
    assert sequence.position == length
    return sequence


def reserve_all(cache: CacheManager, length: int) -> Any:
    sequence = cache.begin(cache.match(OTHER))
    return cache.reserve([sequence.id], [length]), sequence


def calls_of(place: Place) -> np.ndarray[Any, Any]:
    """Sizes of the calls in the log."""
    events = np.concatenate([np.zeros(0, EVENT_DTYPE), *read_events(place.directory)])
    ends = np.flatnonzero(events["flags"] & LAST_OF_CALL)
    assert ends[-1] == len(events) - 1
    assert np.array_equal(events["seqno"], np.arange(1, len(events) + 1))
    sizes: np.ndarray[Any, Any] = np.diff(ends, prepend=-1)
    return sizes


@pytest.mark.parametrize("ring_events", [SMALL, BIG], ids=["small", "big"])
def test_no_call_is_larger_than_a_quarter(place: Place, ring_events: int) -> None:
    log = {"ring_events": ring_events, "segment_bytes": 8 << 20}
    with place.open(log=log, **SIZES) as cache:
        long_work(cache)
        cache.flush()
        sizes = calls_of(place)
        assert sizes.max() <= ring_events // 4
        assert (sizes.max() > SMALL // 4) == (ring_events == BIG), "the small ring cut nothing"


def test_the_outcome_does_not_depend_on_the_ring(place: Place, tmp_path: Any) -> None:
    """Whole in one call or in many: the same hits, pages, counts and events."""
    outcomes = []
    for ring_events in (SMALL, BIG):
        where = Place(tmp_path / str(ring_events), place.shared)
        log = {"ring_events": ring_events, "segment_bytes": 8 << 20}
        with where.open(log=log, **SIZES) as cache:
            outcomes.append(long_work(cache))
    assert outcomes[0] == outcomes[1]


def test_without_a_log_no_ring_is_too_small() -> None:
    """The ring of a manager without a log is drained by nobody."""
    cache = memory_manager(**SIZES)
    outcome = long_work(cache)
    assert outcome.hits[1] == (8992, 8992)
    assert cache.stats().last_seqno > 8 * SMALL
    assert cache.stats().ring_stalls == 0


def die_between_parts(place: Place, num_parts: int) -> None:
    """Reserve 500 blocks at once, and die after some parts of that call."""
    cache = place.open(log={"ring_events": SMALL}, **SIZES)
    sequence = cache.begin(cache.match(LONG))
    run = CoreCaller.run
    left = num_parts

    def run_and_die(self: CoreCaller, *arguments: Any) -> int:
        nonlocal left
        code = run(self, *arguments)
        left -= code == MORE
        if left == 0:
            os._exit(9)
        return code

    CoreCaller.run = run_and_die  # type: ignore[assignment,method-assign]
    cache.reserve([sequence.id], [8000])


@pytest.mark.parametrize("num_parts", [1, 2, 4])
def test_killed_between_two_parts_of_a_call(place: Place, num_parts: int) -> None:
    """The parts so far are in the log, whole; recovery gives their pages back."""
    pid, pipe = in_child(lambda _: die_between_parts(place, num_parts))
    os.close(pipe)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 9
    with place.open(log={"ring_events": SMALL}, **SIZES) as cache:
        assert cache.recovery is not None
        crashed = cache.recovery.pages_lost["crashed"]
        assert 100 * num_parts < crashed < 130 * num_parts + 2
        assert hit(cache, LONG) == (0, 0)
        for pool in cache.stats().pools:
            assert pool.pages["free"] == pool.slots - 1
        assert serve(cache, LONG) == 0
        assert hit(cache, LONG)[1] == 8000
        check_sums(cache)
        calls_of(place)

"""Handles of sequences, plans and leases that outlived what they name."""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from kvstrata import CacheManager, ConfigError, InvariantViolation, OutOfPages, StaleLease
from kvstrata.core.words import PAGE_CHECKSUM, PAGE_GENERATION
from kvstrata.storage import BadPage

from .support import (
    check_sums,
    hit,
    in_another_thread,
    memory_manager,
    prefill,
    refused,
    request,
    serve,
)

ONE = request("one", 40)


def quarantine_first_block(cache: CacheManager, blocks: npt.NDArray[np.int64]) -> None:
    slot = int(cache.tables.blocks.pages[int(blocks[0, 0]), 0])
    page = cache.tables.pages[slot]
    generation, checksum = int(page[PAGE_GENERATION]), int(page[PAGE_CHECKSUM])
    cache.quarantine(BadPage(0, slot, generation, checksum, checksum ^ 1))


def test_finish_twice(cache: CacheManager) -> None:
    sequence = prefill(cache, ONE)
    sequence.finish()
    with refused(cache, StaleLease, rf"{sequence.id:#x} has ended"):
        sequence.finish()
    assert cache.stats().sequences == 0


def test_finish_after_cancel(cache: CacheManager) -> None:
    sequence = prefill(cache, ONE)
    sequence.cancel()
    with refused(cache, StaleLease, rf"{sequence.id:#x} has ended"):
        sequence.finish()
    with refused(cache, StaleLease, rf"{sequence.id:#x} has ended"):
        sequence.cancel()
    assert cache.stats().sequences == 0


def test_cancelled_in_flight_and_once_more(cache: CacheManager) -> None:
    sequence = cache.begin(cache.match(ONE))
    step = cache.reserve([sequence.id], [20])
    sequence.cancel()
    for call in (sequence.cancel, sequence.finish):
        with refused(cache, StaleLease, rf"{sequence.id:#x} was cancelled"):
            call()
    with refused(cache, StaleLease, "was cancelled"):
        _ = sequence.position
    with refused(cache, StaleLease, "expected ids of running sequences", f"{sequence.id:#x}"):
        cache.reserve([sequence.id], [1])
    step.commit()
    with refused(cache, StaleLease, "has ended"):
        sequence.cancel()
    check_sums(cache)


def test_finish_with_steps_in_flight(cache: CacheManager) -> None:
    sequence = cache.begin(cache.match(ONE))
    step = cache.reserve([sequence.id], [20])
    with refused(cache, StaleLease, "expected no step in flight, found 1", "commit or abort"):
        sequence.finish()
    step.commit()
    sequence.finish()
    assert hit(cache, ONE)[1] == 16


def test_an_id_is_never_used_again(cache: CacheManager) -> None:
    """The row is, so an old handle must not reach the new sequence."""
    old = prefill(cache, ONE)
    old.finish()
    new = prefill(cache, request("two", 40))
    assert new.id & 0xFFFF == old.id & 0xFFFF
    assert new.id != old.id
    with refused(cache, StaleLease, f"{old.id:#x} has ended"):
        cache.block_slots(old, "full")
    with refused(cache, StaleLease, f"{old.id:#x} has ended"):
        old.cancel()
    assert new.position == 40


def test_slots_of_a_group_that_has_none(cache: CacheManager) -> None:
    sequence = prefill(cache, ONE)
    with refused(cache, ConfigError, "expected a history group, found 'swa'"):
        cache.block_slots(sequence, "swa")
    with refused(cache, ConfigError, "no such"):
        cache.block_slots(sequence, "no such")
    assert len(cache.block_slots(sequence, "full")) == 3


def test_release_twice(cache: CacheManager) -> None:
    serve(cache, ONE)
    lease = cache.lease(cache.match(ONE))
    lease.verify()
    lease.release()
    with refused(cache, StaleLease, f"{lease.id:#x} was released before"):
        lease.release()
    with refused(cache, StaleLease, f"{lease.id:#x} was released"):
        lease.verify()
    with cache.lease(cache.match(ONE)) as again:
        assert again.id != lease.id
    with refused(cache, StaleLease, "was released before"):
        again.release()


def test_a_lease_keeps_what_it_pins(cache: CacheManager) -> None:
    serve(cache, ONE)
    with cache.lease(cache.match(ONE)) as lease:
        for number in range(30):
            serve(cache, request(f"other {number}", 300))
        lease.verify()
        assert hit(cache, ONE) == (32, 32)
    for number in range(30):
        serve(cache, request(f"more {number}", 300))
    assert hit(cache, ONE) == (0, 0)
    check_sums(cache)


def test_verify_after_quarantine(cache: CacheManager) -> None:
    serve(cache, ONE)
    lease = cache.lease(cache.match(ONE))
    quarantine_first_block(cache, lease.plan.blocks)
    with refused(cache, StaleLease, f"{lease.id:#x}", "quarantined since; match again"):
        lease.verify()
    pages = cache.stats().pools[0].pages
    assert pages["quarantined"] == 1, "a lease holds it: it is not freed yet"
    lease.release()
    assert cache.stats().pools[0].pages["quarantined"] == 0
    check_sums(cache)


def test_a_lease_of_nothing(cache: CacheManager) -> None:
    with refused(cache, ConfigError, "expected a plan that reuses something, found none"):
        cache.lease(cache.match(ONE))
    assert cache.stats().leases == 0


def test_more_leases_than_rows(cache: CacheManager) -> None:
    serve(cache, ONE)
    leases = [cache.lease(cache.match(ONE)) for _ in range(2)]
    with refused(cache, OutOfPages, "expected a free lease row, found all 2 taken"):
        cache.lease(cache.match(ONE))
    for lease in leases:
        lease.release()
    assert cache.stats().leases == 0
    cache.lease(cache.match(ONE)).release()
    assert cache.stats().leases == 0


def test_more_sequences_than_rows(cache: CacheManager) -> None:
    running = [cache.begin(cache.match(ONE)) for _ in range(4)]
    before = cache.digest()
    with pytest.raises(OutOfPages, match=r"found 4 sequences running and \d+ of 19 images"):
        cache.begin(cache.match(ONE))
    assert cache.digest() == before
    running[0].cancel()
    cache.begin(cache.match(ONE))
    check_sums(cache)


def test_no_images_left() -> None:
    cache = memory_manager(slots={"full": 40, "swa": 6})
    cache.begin(cache.match(ONE))
    last = cache.begin(cache.match(ONE))
    before = cache.digest()
    with pytest.raises(OutOfPages, match="found 2 sequences running and 1 of 5 images"):
        cache.begin(cache.match(ONE))
    assert cache.digest() == before
    last.cancel()
    cache.begin(cache.match(ONE))


@pytest.mark.parametrize("verb", ["begin", "lease"])
@pytest.mark.parametrize("cause", ["evicted", "quarantined", "written again"])
def test_a_stale_plan(cache: CacheManager, verb: str, cause: str) -> None:
    serve(cache, ONE)
    plan = cache.match(ONE)
    assert plan.resume_at == 32
    if cause == "quarantined":
        quarantine_first_block(cache, plan.blocks)
    else:
        for number in range(30):
            serve(cache, request(f"other {number}", 300))
    if cause == "written again":
        serve(cache, ONE)
        assert hit(cache, ONE) == (32, 32)
    with refused(cache, StaleLease, "pages changed since it was made; match again", name="new"):
        getattr(cache, verb)(plan)


CALLS: dict[str, Callable[[CacheManager], Callable[[], object]]] = {
    "begin": lambda cache: lambda: cache.begin(cache.match(ONE)),
    "reserve": lambda cache: (lambda identity: lambda: cache.reserve([identity], [1]))(
        prefill(cache, ONE).id
    ),
    "commit": lambda cache: cache.reserve([cache.begin(cache.match(ONE)).id], [20]).commit,
    "abort": lambda cache: cache.reserve([cache.begin(cache.match(ONE)).id], [20]).abort,
    "finish": lambda cache: prefill(cache, ONE).finish,
    "cancel": lambda cache: prefill(cache, ONE).cancel,
    "lease": lambda cache: lambda: cache.lease(cache.match(request("served", 40))),
    "release": lambda cache: cache.lease(cache.match(request("served", 40))).release,
    "quarantine": lambda cache: lambda: cache.quarantine(BadPage(0, 1, 1, 0, 1)),
    "check_integrity": lambda cache: cache.check_integrity,
}


@pytest.mark.parametrize("name", CALLS)
def test_another_thread_may_not_call(cache: CacheManager, name: str) -> None:
    serve(cache, request("served", 40))
    call = CALLS[name](cache)
    with refused(
        cache, InvariantViolation, "expected the thread that opened the manager, found another"
    ):
        in_another_thread(call)
    call()  # the thread that opened it still may
    assert cache._call.may_mutate()


@pytest.mark.parametrize("name", CALLS)
def test_after_close_nothing_goes(cache: CacheManager, name: str) -> None:
    serve(cache, request("served", 40))
    call = CALLS[name](cache)
    cache.close()
    before = cache.digest()
    with pytest.raises(InvariantViolation, match="mutates no more: it was closed"):
        call()
    assert cache.digest() == before
    cache.close()
    assert cache.digest() == before

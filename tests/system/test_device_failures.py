"""A device that fails or hangs under a whole manager: serving goes on, and nothing lies."""

import errno
import time
from typing import Any

import pytest

from kvstrata import CacheManager, LogPoisoned
from kvstrata.core.ring import RING_HEADER_WORDS
from kvstrata.eventstore.log import LogStatus, read_events, read_status
from tests.eventstore.faults import FailingSystem, HookedSystem, StallingSystem
from tests.face.support import Place, check_sums, hit, prefill, request, serve

from .restart import bring, came_up_cold

FAILURES = [
    ("pwritev", errno.EIO),
    ("pwritev", errno.ENOSPC),
    ("pwritev", 0),
    ("fdatasync", errno.EIO),
    ("fdatasync", errno.ENOSPC),
]
IMPATIENT: dict[str, Any] = {"stall_limit_ms": 80.0, "flush_timeout_ms": 2000.0}
LONGEST_STEP_S = 1.5
"""The stall limit of IMPATIENT with room for a busy machine; ``flush_timeout_ms`` is longer."""


def status_of(place: Place) -> LogStatus:
    status = read_status(place.directory, place.shared, stall_limit_ms=IMPATIENT["stall_limit_ms"])
    assert status is not None
    return status


def serve_on(cache: CacheManager, num_events: int) -> None:
    """Serve until so many events have passed; every answer stays right."""
    end = cache.stats().last_seqno + num_events
    number = 0
    while cache.stats().last_seqno < end:
        name = f"on {number % 3}"
        found = hit(cache, request(name, 100))[0]
        assert serve(cache, request(name, 100), num_output=20) == found
        assert hit(cache, request(name, 100)) == (96, 96)
        number += 1
    check_sums(cache)


def durable_seqno(place: Place) -> int:
    """The last event a reader of the directory finds."""
    return max((int(events["seqno"][-1]) for events in read_events(place.directory)), default=0)


@pytest.mark.parametrize("pools", [None, "shared"])
@pytest.mark.parametrize(("call", "error"), FAILURES, ids=lambda value: str(value))
def test_a_failure_poisons_and_serving_goes_on(
    place: Place, monkeypatch: pytest.MonkeyPatch, call: str, error: int, pools: str | None
) -> None:
    system = FailingSystem()
    bring(monkeypatch, system)
    cache = place.open(pools)
    serve(cache, request("before"))
    cache.flush()
    acknowledged = cache.stats().last_seqno
    system.fail(call, error)
    serve(cache, request("during"))
    with pytest.raises(LogPoisoned, match=r"expected events up to \d+ to become durable, found"):
        cache.flush()
    system.fails = ""  # the device is well again, and still nothing is tried
    failures = system.num_failures
    ring = status_of(place).capacity
    serve_on(cache, 3 * ring)
    assert hit(cache, request("before")) in ((32, 32), (0, 0))
    for _ in range(2):
        with pytest.raises(LogPoisoned):
            cache.flush()
    status = status_of(place)
    assert (status.poisoned, status.unlogged) == (True, True)
    assert status.durable == acknowledged
    assert status.head > acknowledged + 3 * ring
    assert system.num_failures == failures
    cache.close()
    assert durable_seqno(place) < acknowledged + ring
    monkeypatch.undo()
    came_up_cold(place, pools, ["before", "during", "on 0"], lost=3)


def test_a_failure_in_the_middle_of_sequences(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Steps in flight when the log dies are committed and finished as ever."""
    system = FailingSystem()
    bring(monkeypatch, system)
    cache = place.open("shared")
    running = [prefill(cache, request(name)) for name in ("one", "two")]
    step = cache.reserve([each.id for each in running], [3, 4])
    system.fail("pwritev", errno.EIO)
    cache.begin(cache.match(request("three")))
    with pytest.raises(LogPoisoned, match="Input/output error"):
        cache.flush()
    step.commit(accepted=[2, 4], tokens=[1, 2, 3, 4, 5, 6, 7])
    assert [each.position for each in running] == [42, 44]
    running[0].finish()
    running[1].cancel()
    check_sums(cache)
    cache.close()
    monkeypatch.undo()
    came_up_cold(place, "shared", ["one", "two", "three"], lost=4)


def test_a_failure_seen_only_on_close(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    system = FailingSystem()
    bring(monkeypatch, system)
    patient = {"durability": "none", "sync_interval_ms": 900.0, "stall_limit_ms": 2000.0}
    cache = place.open("shared", log=patient)
    cache.flush()
    serve(cache, request("lost"))
    system.fail("fdatasync", errno.EIO)
    with pytest.raises(LogPoisoned, match="on close, found"):
        cache.close()
    monkeypatch.undo()
    came_up_cold(place, "shared", ["lost"], lost=3)


def slowest_step(cache: CacheManager, num_events: int) -> float:
    """Serve so many events; the longest that one call took, in seconds."""
    slowest = 0.0
    end = cache.stats().last_seqno + num_events
    number = 0
    while cache.stats().last_seqno < end:
        sequence = cache.begin(cache.match(request(f"slow {number % 5}", 200)))
        while sequence.position < 200:
            began = time.monotonic()
            cache.reserve([sequence.id], [200 - sequence.position]).commit()
            slowest = max(slowest, time.monotonic() - began)
        sequence.finish()
        number += 1
    return slowest


@pytest.mark.parametrize("pools", [None, "shared"])
def test_a_stalled_writer_hangs_no_step(
    place: Place, monkeypatch: pytest.MonkeyPatch, pools: str | None
) -> None:
    system = StallingSystem()
    bring(monkeypatch, system)
    cache = place.open(pools, log=IMPATIENT)
    serve(cache, request("before"))
    cache.flush()
    durable = status_of(place).durable
    system.gate.clear()
    ring = status_of(place).capacity
    assert slowest_step(cache, 4 * ring) < LONGEST_STEP_S
    status = status_of(place)
    assert (status.unlogged, status.poisoned, status.stalled) == (True, False, True)
    assert (status.writer_alive, status.phase.name) == (True, "SYNCING")
    assert status.durable == durable
    assert status.num_stalls >= 1, "the writer may have drained once more before it stalled"
    assert cache.stats().ring_stalls == status.num_stalls
    with pytest.raises(LogPoisoned, match=r"an ended epoch \(the ring is full"):
        cache.flush()
    check_sums(cache)
    system.gate.set()  # the sync comes back late and acknowledges nothing
    cache.close()
    assert status_of(place).durable == durable
    monkeypatch.undo()
    came_up_cold(place, pools, ["before", "slow 0"], lost=3)


def test_a_short_stall_loses_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    """Within the limit a full ring makes a call wait, and the log goes on."""
    system = StallingSystem()
    bring(monkeypatch, system)
    cache = place.open("shared", log={"stall_limit_ms": 20_000.0})
    serve(cache, request("before"))
    cache.flush()
    system.gate.clear()
    ring = status_of(place).capacity
    while cache.stats().last_seqno - status_of(place).drained < ring // 2:
        serve(cache, request("during", 100), num_output=20)
    system.gate.set()
    slowest_step(cache, 2 * ring)
    cache.flush()
    status = status_of(place)
    assert (status.unlogged, status.poisoned, status.durable) == (False, False, status.head)
    wanted = [request(f"slow {number}", 200) for number in range(5)]
    found = [hit(cache, each) for each in wanted]
    assert max(history for _, history in found) == 192
    cache.close()
    monkeypatch.undo()
    with place.open("shared") as again:
        assert again.recovery is not None
        assert again.recovery.log.bytes_trusted
        assert [hit(again, each) for each in wanted] == found
        check_sums(again)


@pytest.mark.parametrize("pools", [None, "shared"])
def test_a_writer_that_is_gone_hangs_no_step(place: Place, pools: str | None) -> None:
    """The thread ended without a word: only the status page can tell."""
    cache = place.open(pools, log=IMPATIENT)
    serve(cache, request("before"))
    cache.flush()
    assert cache.log is not None
    cache.log._writer.abandon(5.0)
    time.sleep(2 * IMPATIENT["stall_limit_ms"] / 1e3)
    status = status_of(place)
    assert (status.stalled, status.poisoned, status.unlogged) == (True, False, False)
    assert status.phase.name == "STOPPED"
    with pytest.raises(LogPoisoned, match="found a dead writer; durable up to"):
        cache.flush()
    assert slowest_step(cache, 4 * status.capacity) < LONGEST_STEP_S
    assert status_of(place).unlogged
    with pytest.raises(LogPoisoned):
        cache.flush()
    check_sums(cache)
    cache.close()
    came_up_cold(place, pools, ["before", "slow 0"], lost=3)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_writer_that_dies_of_a_bug(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    dies = False

    def hook(name: str) -> None:
        if dies and name == "pwritev":
            raise MemoryError("a bug in the writer")

    bring(monkeypatch, HookedSystem(hook))
    cache = place.open("shared", log=IMPATIENT)
    serve(cache, request("before"))
    cache.flush()
    durable = status_of(place).durable
    dies = True
    assert slowest_step(cache, 4 * status_of(place).capacity) < LONGEST_STEP_S
    status = status_of(place)
    assert (status.poisoned, status.unlogged, status.durable) == (True, True, durable)
    with pytest.raises(LogPoisoned, match="the writer ended by MemoryError"):
        cache.flush()
    dies = False
    cache.close()
    monkeypatch.undo()
    came_up_cold(place, "shared", ["before"], lost=3)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_ring_that_breaks_its_rules(place: Place) -> None:
    """A stray write over the ring ends the log, not the engine; what it hit is never replayed."""
    cache = place.open("shared", log={"sync_interval_ms": 500.0, "stall_limit_ms": 1000.0})
    serve(cache, request("before"))
    cache.flush()
    acknowledged = cache.stats().last_seqno
    assert cache.log is not None
    serve(cache, request("during"))
    cache.log.ring[RING_HEADER_WORDS + acknowledged * 8] = 77
    with pytest.raises(LogPoisoned):
        cache.flush()
    assert status_of(place).poisoned
    serve_on(cache, 2000)
    cache.close()
    assert durable_seqno(place) == acknowledged
    came_up_cold(place, "shared", ["before", "during"], lost=3)

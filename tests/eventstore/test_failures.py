"""A device that fails, a writer that stalls or dies: nothing hangs, nothing lies."""

import errno
import threading
import time

import numpy as np
import pytest

from kvstrata.core.errors import LogError, LogPoisoned
from kvstrata.core.ring import RING_FLAG_UNLOGGED, RING_FLAGS, RING_HEARTBEAT_NS
from kvstrata.eventstore.log import EventLog, read_status
from kvstrata.eventstore.log.cursors import Cursors, Patience

from .faults import FailingSystem, StallingSystem
from .support import Bench, publish_call, state_after

FAILURES = [
    ("pwritev", errno.EIO),
    ("pwritev", errno.ENOSPC),
    ("pwritev", 0),
    ("fdatasync", errno.EIO),
    ("fdatasync", errno.ENOSPC),
]


def wait_until(log: EventLog, what: str) -> None:
    deadline = time.monotonic() + 5
    while not getattr(log, what):
        assert time.monotonic() < deadline
        time.sleep(0.001)


@pytest.mark.parametrize(("call", "error"), FAILURES, ids=lambda value: str(value))
def test_a_failure_poisons_for_good(bench: Bench, call: str, error: int) -> None:
    system = FailingSystem()
    log = bench.open(system)
    log.start()
    publish_call(log, 4)
    log.flush()
    system.fail(call, error)
    publish_call(log, 3)
    with pytest.raises(LogPoisoned, match="expected events up to 7 to become durable"):
        log.flush()
    system.fails = ""
    failures = system.num_failures
    publish_call(log, 2)
    with pytest.raises(LogPoisoned):
        log.flush()
    with pytest.raises(LogPoisoned):
        log.snapshot(log.arena, 9)
    assert system.num_failures == failures  # nothing was tried again
    status = log.status()
    assert (status.poisoned, status.durable, status.head) == (True, 4, 9)
    log.close()
    # The events are all in the ring; the pools are distrusted.
    again = bench.open()
    again.close(clean=False)
    assert again.recovery.last_seqno == 9
    assert again.recovery.ring == "POISONED"
    assert not again.recovery.bytes_trusted
    assert not again.recovery.clean
    assert np.array_equal(again.arena, state_after([4, 3, 2]))


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "fallocate", "rename", "sync_directory"])
def test_a_failure_while_rotating_poisons(bench: Bench, call: str) -> None:
    system = FailingSystem()
    log = bench.open(system)
    log.start()
    sizes = []
    for _ in range(3):
        publish_call(log, 40)
        sizes.append(40)
        log.flush()
    system.fail(call, errno.EIO)
    for _ in range(20):
        if log.poisoned:
            break
        publish_call(log, 60)
        sizes.append(60)
        time.sleep(0.02)
    wait_until(log, "poisoned")
    assert log.status().durable >= 120
    log.close()
    system.fails = ""
    again = bench.open()
    again.close(clean=False)
    assert again.recovery.last_seqno >= 120
    assert not again.recovery.bytes_trusted


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "fallocate", "rename", "sync_directory"])
def test_a_failure_while_opening_changes_no_acknowledged_event(bench: Bench, call: str) -> None:
    bench.write([[3], [4]])
    system = FailingSystem()
    system.fail(call, errno.ENOSPC)
    with pytest.raises(LogError, match="No space left"):
        bench.open(system)
    log = bench.open()
    log.close()
    assert np.array_equal(log.arena, state_after([3, 4]))


def test_an_unlogged_epoch_restarts_cold(bench: Bench) -> None:
    log = bench.open()
    log.start()
    publish_call(log, 3)
    log.flush()
    log.end_epoch("tried out")
    publish_call(log, 5)  # goes past the log
    with pytest.raises(LogPoisoned, match="tried out"):
        log.flush()
    assert log.status().unlogged
    log.close()
    again = bench.open()
    assert again.recovery.last_seqno == 3
    assert (again.recovery.unlogged, again.recovery.bytes_trusted) == (True, False)
    assert np.array_equal(again.arena, state_after([3]))
    again.start()
    publish_call(again, 1)
    again.settle_recovery()
    again.close()
    last = bench.open()
    last.close()
    assert (last.recovery.unlogged, last.recovery.bytes_trusted) == (False, True)


def test_an_unlogged_epoch_whose_marker_failed_restarts_cold(bench: Bench) -> None:
    system = FailingSystem()
    log = bench.open(system)
    log.start()
    publish_call(log, 3)
    log.flush()
    system.fail("pwritev", errno.EIO)
    log.end_epoch("device failed")
    assert not (bench.directory / "unlogged").exists()
    log.close()
    again = bench.open()
    again.close(clean=False)
    assert (again.recovery.ring, again.recovery.bytes_trusted) == ("UNLOGGED", False)
    assert again.recovery.unlogged


def test_a_stalled_writer_shows_and_hangs_nothing(bench: Bench) -> None:
    system = StallingSystem()
    settings = {"stall_limit_ms": 60.0, "flush_timeout_ms": 300.0}
    log = bench.open(system, **settings)
    log.start()
    publish_call(log, 3)
    log.flush()
    system.gate.clear()
    publish_call(log, 2)
    began = time.monotonic()
    with pytest.raises(LogPoisoned, match=r"a writer silent for .* ms while syncing"):
        log.flush()
    assert time.monotonic() - began < 2
    status = read_status(bench.directory, bench.shared, stall_limit_ms=60.0)
    assert status is not None
    assert (status.stalled, status.writer_alive, status.durable) == (True, True, 3)
    assert status.phase.name == "SYNCING"
    began = time.monotonic()
    log.end_epoch("stalled")
    assert time.monotonic() - began < 1
    began = time.monotonic()
    log.close()
    assert time.monotonic() - began < 2
    # It still hangs in the sync: the directory stays locked, for it might write yet.
    system.gate.set()
    deadline = time.monotonic() + 5
    while log.status().phase.name != "STOPPED" and time.monotonic() < deadline:
        time.sleep(0.001)
    # The sync that came back late acknowledged nothing.
    assert log.status().durable == 3


def test_a_flush_has_a_limit_even_while_the_writer_beats(bench: Bench) -> None:
    system = StallingSystem()
    log = bench.open(system)
    log.start()
    publish_call(log, 3)
    log.flush()
    system.gate.clear()
    publish_call(log, 2)
    with pytest.raises(LogPoisoned, match=r"in 0.1 s, found 3 durable"):
        log.flush(timeout_s=0.1)
    system.gate.set()
    log.flush()
    log.close()


def test_a_pause_of_the_whole_process_is_no_stall(bench: Bench) -> None:
    """After a pause the heartbeat is old, but nobody has waited for the writer yet."""
    log = bench.open(stall_limit_ms=100.0)
    log.start()
    publish_call(log, 1)
    patience = Patience(Cursors(log.ring))
    patience.look(20.0)
    log.ring[RING_HEARTBEAT_NS] -= 3_600_000_000_000
    log.flush()
    patience.look(20.0)
    assert patience.silence_ms <= 20.0
    log.close()


def test_a_dead_writer_shows(bench: Bench) -> None:
    log = bench.open(stall_limit_ms=50.0)
    publish_call(log, 1)
    with pytest.raises(LogPoisoned, match="a writer never started"):
        log.flush()
    log.start()
    log.flush()
    log.close(clean=False)  # the thread is gone, as if it had died
    publish_call(log, 1)
    with pytest.raises(LogPoisoned, match="a dead writer"):
        log.flush()
    time.sleep(0.06)
    status = log.status()
    assert (status.stalled, status.closed, status.head, status.durable) == (True, False, 2, 1)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_ring_that_breaks_its_rules_is_never_written(bench: Bench) -> None:
    log = bench.open()
    log.start()
    publish_call(log, 2)
    log.flush()
    publish_call(log, 2)
    log.ring[512 + 2 * 8] = 77  # event 3 says it is event 77
    log.ring[2] = 4
    wait_until(log, "poisoned")
    assert "expected consecutive events from 3" in log.reason
    assert log.status().durable == 2
    log.close()


def test_close_reports_what_did_not_become_durable(bench: Bench) -> None:
    system = FailingSystem()
    log = bench.open(system, durability="none", sync_interval_ms=900.0, stall_limit_ms=2000.0)
    log.start()
    publish_call(log, 2)
    system.fail("fdatasync", errno.EIO)
    with pytest.raises(LogPoisoned, match="on close"):
        log.close()
    log.close()
    again = bench.open()
    again.close(clean=False)
    assert again.recovery.last_seqno == 2
    assert not again.recovery.bytes_trusted


def test_flags_survive_together(bench: Bench) -> None:
    system = FailingSystem()
    log = bench.open(system)
    log.start()
    system.fail("pwritev", errno.EIO)
    publish_call(log, 1)
    wait_until(log, "poisoned")
    log.end_epoch("poisoned")
    assert log.status().poisoned
    assert int(log.ring[RING_FLAGS]) & RING_FLAG_UNLOGGED
    assert "writing" in log.reason
    log.close()


def test_no_thread_is_left_behind(bench: Bench) -> None:
    before = set(threading.enumerate())
    log = bench.open()
    log.start()
    publish_call(log, 1)
    log.close()
    assert set(threading.enumerate()) == before

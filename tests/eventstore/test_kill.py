"""kill -9 at chosen and at random moments: what was published is there, whole calls only."""

import os
import random
import signal
import time
import traceback
from collections.abc import Callable
from itertools import islice

import numpy as np
import pytest

from kvstrata.core.ring import RING_HEAD, RING_HEADER_WORDS
from kvstrata.eventstore.log import read_status
from kvstrata.eventstore.log.fsck import fsck

from .faults import HookedSystem
from .support import Bench, make_call, publish_call, state_after


def call_sizes() -> list[int]:
    dice = random.Random(5)
    return [dice.randint(1, 60) for _ in range(2000)]


def sizes_up_to(seqno: int) -> list[int]:
    """Whole calls that end at a seqno."""
    ends = np.cumsum(call_sizes())
    [place] = np.flatnonzero(ends == seqno) if seqno else [-1]
    return call_sizes()[: place + 1]


def in_child(run: Callable[[int], None]) -> tuple[int, int]:
    """Run in a forked process that reports acknowledged seqnos; returns its pid and the pipe."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            os.close(reading)
            run(writing)
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(1)
    os.close(writing)
    return pid, reading


def acknowledged_by(pid: int, pipe: int) -> int:
    """Wait for the child to be killed; the last seqno it was told is durable."""
    _, status = os.waitpid(pid, 0)
    assert os.WIFSIGNALED(status), status
    assert os.WTERMSIG(status) == signal.SIGKILL
    with os.fdopen(pipe, "rb") as file:
        reports = file.read()
    return int.from_bytes(reports[-8:], "little") if reports else 0


def work(bench: Bench, hook: Callable[[str], None], report: int, skip: int = 0) -> None:
    log = bench.open(HookedSystem(hook), sync_interval_ms=1.0, segments_per_snapshot=1)
    log.start()
    os.write(report, log.status().durable.to_bytes(8, "little"))
    for number, size in enumerate(islice(call_sizes(), skip, None)):
        while log.ring[RING_HEAD] + size - log.status().drained > 256:
            time.sleep(0.0002)
        publish_call(log, size)
        if number % 7 == 6:
            log.flush()
            os.write(report, log.status().durable.to_bytes(8, "little"))


def check_recovery(bench: Bench, acknowledged: int, published: int) -> None:
    log = bench.open()
    log.close(clean=False)
    last = log.recovery.last_seqno
    assert acknowledged <= last == published
    assert log.recovery.bytes_trusted
    assert np.array_equal(log.arena, state_after(sizes_up_to(last)))
    assert fsck(bench.directory, False, bench.shared).is_sound


@pytest.mark.parametrize(
    "call", ["pwritev", "fdatasync", "truncate", "rename", "sync_directory", "fallocate"]
)
@pytest.mark.parametrize("number", [9, 24])
def test_killed_inside_a_call(bench: Bench, call: str, number: int) -> None:
    count = 0

    def hook(name: str) -> None:
        nonlocal count
        count += name == call
        if count == number:
            os.kill(os.getpid(), signal.SIGKILL)

    acknowledged = acknowledged_by(*in_child(lambda report: work(bench, hook, report)))
    status = read_status(bench.directory, bench.shared)
    assert status is not None
    assert not status.writer_alive
    print(f"killed before {call} number {number}, writer {status.phase.name}, at {status.head}")
    check_recovery(bench, acknowledged, status.head)


def test_killed_at_random_moments(bench: Bench) -> None:
    dice = random.Random(11)
    where: dict[str, int] = {}
    done = 0
    for _ in range(12):
        calls = len(sizes_up_to(done))
        pid, pipe = in_child(
            lambda report, skip=calls: work(bench, lambda name: None, report, skip)  # type: ignore[misc]
        )
        started = os.read(pipe, 8)
        time.sleep(dice.random() * 0.05)
        os.kill(pid, signal.SIGKILL)
        acknowledged = max(acknowledged_by(pid, pipe), int.from_bytes(started, "little"))
        status = read_status(bench.directory, bench.shared)
        assert status is not None
        where[status.phase.name] = where.get(status.phase.name, 0) + 1
        check_recovery(bench, acknowledged, status.head)
        done = status.head
    print(f"killed at event {done}, the writer was: {where}")
    assert done > 0


def test_killed_while_writing_into_the_ring(bench: Bench) -> None:
    """Events of a call that was never published are not there, not even one."""

    def run(report: int) -> None:
        log = bench.open()
        log.start()
        publish_call(log, 3)
        log.flush()
        os.write(report, (3).to_bytes(8, "little"))
        for place, event in enumerate(make_call(4, 9)[:5]):
            at = RING_HEADER_WORDS + (3 + place) * 8
            log.ring[at : at + 8] = event
        os.kill(os.getpid(), signal.SIGKILL)

    assert acknowledged_by(*in_child(run)) == 3
    log = bench.open()
    log.close()
    assert log.recovery.last_seqno == 3
    assert np.array_equal(log.arena, state_after([3]))


@pytest.mark.parametrize("call", ["pwritev", "fdatasync", "truncate", "rename", "sync_directory"])
def test_killed_while_recovering(bench: Bench, call: str) -> None:
    """Recovery that is killed at each of its calls in turn ends where an unharmed one does."""
    log = bench.open()
    log.start()
    for size in call_sizes()[:3]:
        publish_call(log, size)
    log.flush()
    publish_call(log, call_sizes()[3])
    log.close(clean=False)
    expected = state_after(call_sizes()[:4])
    for number in range(1, 12):
        count = 0

        def hook(name: str, number: int = number) -> None:
            nonlocal count
            count += name == call
            if count == number:
                os.kill(os.getpid(), signal.SIGKILL)

        def run(report: int, hook: Callable[[str], None] = hook) -> None:
            bench.open(HookedSystem(hook))
            os.kill(os.getpid(), signal.SIGKILL)

        acknowledged_by(*in_child(run))
    log = bench.open()
    log.close(clean=False)
    assert np.array_equal(log.arena, expected)
    assert log.recovery.bytes_trusted
    assert fsck(bench.directory, False, bench.shared).is_sound

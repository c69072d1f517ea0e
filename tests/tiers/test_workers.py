from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvstrata.core.errors import ConfigError, StoreError
from kvstrata.tiers.jobs import LOADS_IN_A_ROW, Job, Kind, load_shares
from kvstrata.tiers.workers import Workers

LONG_S = 30.0  # a limit no test comes near unless it fails


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


class Lane:
    """Workers whose jobs write down that they ran; the first one holds a lane until let go."""

    def __init__(self, num_threads: int = 1, max_spills: int = 1) -> None:
        self.clock = Clock()
        self.workers = Workers(num_threads, max_spills, self.clock)
        self.ran: list[str] = []
        self.ended: list[Job] = []
        self._quiet = threading.Condition()
        self._submitted = 0

    def submit(self, kind: Kind, name: str, work: Callable[[], None] | None = None) -> Job:
        def run() -> None:
            self.ran.append(name)
            if work is not None:
                work()

        self._submitted += 1
        return self.workers.submit(kind, run, self._note)

    def hold(self, kind: Kind = "spill") -> threading.Event:
        """Occupy one lane; return once it is occupied. The event lets it go."""
        began, go = threading.Event(), threading.Event()

        def wait() -> None:
            began.set()
            assert go.wait(LONG_S)

        self.submit(kind, "held", wait)
        assert began.wait(LONG_S)
        return go

    def settle(self, num_cancelled: int = 0) -> None:
        """Wait until all that was submitted and not cancelled has ended."""
        with self._quiet:
            expected = self._submitted - num_cancelled
            assert self._quiet.wait_for(lambda: len(self.ended) == expected, LONG_S), self.ran

    def _note(self, job: Job) -> None:
        with self._quiet:
            self.ended.append(job)
            self._quiet.notify_all()


@contextmanager
def lane(num_threads: int = 1, max_spills: int = 1) -> Iterator[Lane]:
    made = Lane(num_threads, max_spills)
    try:
        yield made
    finally:
        closed = made.workers.close(0.0, LONG_S)
        assert not closed.stuck


def eventually(holds: Callable[[], bool]) -> None:
    """Counts are updated right after the callback; wait for that."""
    waiting = threading.Event()
    for _ in range(3000):
        if holds():
            return
        waiting.wait(0.01)
    raise AssertionError("did not become true")


def test_adm_06_a_load_waits_for_the_spill_that_runs_and_no_other() -> None:
    """Time to first token grew with the store backlog: one serial lane for both."""
    with lane() as one:
        go = one.hold()
        for number in range(49):
            one.submit("spill", f"spill {number}", lambda: advance(one.clock, 0.010))
        one.submit("load", "load")
        assert one.workers.stats().queued == {"load": 1, "spill": 49}
        one.clock.now_s += 0.010  # so long does the first spill take
        assert one.workers.stats().oldest_spill_age_s == pytest.approx(0.010)
        go.set()
        one.settle()
        assert one.ran[:3] == ["held", "load", "spill 0"]
        stats = one.workers.stats()
        assert stats.load_queue_wait_s == pytest.approx(0.010)
        assert stats.max_load_queue_wait_s == pytest.approx(0.010)


def advance(clock: Clock, seconds: float) -> None:
    clock.now_s += seconds


def test_a_spill_is_let_through_after_sixteen_loads() -> None:
    with lane() as one:
        go = one.hold("load")
        for number in range(2):
            one.submit("spill", f"spill {number}")
        for number in range(40):
            one.submit("load", f"load {number}")
        go.set()
        one.settle()
        spills = [place for place, name in enumerate(one.ran) if name.startswith("spill")]
        assert spills == [1 + LOADS_IN_A_ROW, 2 + 2 * LOADS_IN_A_ROW]
        assert [name for name in one.ran if name.startswith("load")] == [
            f"load {number}" for number in range(40)
        ]


def test_loads_alone_are_not_counted_against_a_later_spill() -> None:
    with lane() as one:
        for number in range(LOADS_IN_A_ROW):
            one.submit("load", f"alone {number}")
        one.settle()
        go = one.hold("load")
        one.submit("spill", "spill")
        one.submit("load", "load")
        go.set()
        one.settle()
        assert one.ran[-2:] == ["load", "spill"]


def test_no_more_spills_run_than_allowed_and_loads_use_the_other_lanes() -> None:
    with lane(num_threads=4, max_spills=2) as four:
        held = [four.hold(), four.hold()]
        four.submit("spill", "third")
        load = four.submit("load", "load")
        eventually(lambda: load.ended_s is not None)
        assert "third" not in four.ran
        assert four.workers.stats().running["spill"] == 2
        assert four.workers.stats().threads == 4
        held[0].set()
        eventually(lambda: "third" in four.ran)
        held[1].set()
        four.settle()


def test_a_job_that_raises_is_kept_and_the_thread_goes_on() -> None:
    with lane() as one:
        job = one.submit("load", "bad", lambda: fail(ValueError("no")))
        one.submit("load", "good")
        one.settle()
        assert one.ended[0] is job
        assert repr(job.error) == "ValueError('no')"
        assert one.ended[1].error is None
        eventually(lambda: one.workers.stats().ended["load"] == 2)
        stats = one.workers.stats()
        assert stats.failed == {"load": 1, "spill": 0}
        assert stats.threads_replaced == 0


def fail(error: BaseException) -> None:
    raise error


@pytest.mark.parametrize("error", [SystemExit(1), KeyboardInterrupt(), GeneratorExit()])
def test_a_thread_that_dies_is_replaced_and_its_job_failed(error: BaseException) -> None:
    with lane(num_threads=2, max_spills=2) as two:
        job = two.submit("spill", "deadly", lambda: fail(error))
        two.settle()
        assert job.error is error
        eventually(lambda: two.workers.stats().threads_replaced == 1)
        held = [two.hold("load"), two.hold("load")]  # both lanes work
        assert two.workers.stats().failed["spill"] == 1
        assert two.workers.stats().running == {"load": 2, "spill": 0}
        assert two.workers.stats().threads == 2
        for go in held:
            go.set()


@pytest.mark.parametrize("error", [ValueError("callback"), SystemExit(1)])
def test_a_callback_that_raises_fails_its_job_only(error: BaseException) -> None:
    with lane() as one:
        job = one.workers.submit("load", lambda: None, lambda _: fail(error))
        one.submit("load", "after")
        one.settle()
        assert job.error is error
        assert one.workers.stats().failed["load"] == 1


def test_a_cancelled_job_never_runs_and_a_running_one_cannot_be_cancelled() -> None:
    with lane() as one:
        go = one.hold("load")
        waiting = one.submit("load", "never")
        one.submit("load", "after")
        assert waiting.cancel()
        assert waiting.cancel()
        assert waiting.cancelled
        go.set()
        one.settle(num_cancelled=1)
        assert one.ran == ["held", "after"]
        assert waiting.started_s is waiting.ended_s is None
        assert not any(job.cancel() for job in one.ended)
        assert one.workers.stats().cancelled == {"load": 1, "spill": 0}


def test_a_job_tells_its_times() -> None:
    with lane() as one:
        go = one.hold("load")
        job = one.submit("spill", "timed", lambda: advance(one.clock, 2.0))
        one.clock.now_s = 103.0
        go.set()
        one.settle()
        assert (job.kind, job.queued_s, job.started_s, job.ended_s) == ("spill", 100, 103, 105)
        eventually(lambda: one.workers.stats().oldest_spill_age_s == 0)


def test_closing_drops_loads_and_drains_spills() -> None:
    one = Lane()
    go = one.hold("load")
    load = one.submit("load", "load")
    for number in range(3):
        one.submit("spill", f"spill {number}")
    threading.Timer(0.05, go.set).start()
    closed = one.workers.close(LONG_S, LONG_S)
    assert (closed.dropped_loads, closed.dropped_spills, closed.stuck) == (1, 0, ())
    assert one.ran == ["held", "spill 0", "spill 1", "spill 2"]
    assert load.cancelled
    assert one.workers.stats().threads == 0
    for kind in ("load", "spill"):
        with pytest.raises(StoreError, match="closed"):
            one.submit(kind, "late")


def test_closing_drops_the_spills_that_time_does_not_allow() -> None:
    one = Lane()
    go = one.hold("spill")
    spills = [one.submit("spill", f"spill {number}") for number in range(3)]
    threading.Timer(0.05, go.set).start()
    closed = one.workers.close(0.0, LONG_S)
    assert (closed.dropped_loads, closed.dropped_spills, closed.stuck) == (0, 3, ())
    assert all(spill.cancelled for spill in spills)
    assert one.ran == ["held"]


def test_closing_leaves_a_stuck_job_behind_and_says_so() -> None:
    one = Lane(num_threads=2, max_spills=1)
    go = one.hold("load")
    closed = one.workers.close(0.0, 0.05)
    assert [job.kind for job in closed.stuck] == ["load"]
    assert one.workers.stats().threads == 1
    go.set()
    assert one.workers.close(0.0, LONG_S).stuck == ()


def test_a_thread_that_dies_while_closing_does_not_stop_the_draining() -> None:
    one = Lane()
    go = one.hold("load")
    one.submit("spill", "deadly", lambda: fail(SystemExit(1)))
    one.submit("spill", "last")
    threading.Timer(0.05, go.set).start()
    closed = one.workers.close(LONG_S, LONG_S)
    assert (closed.dropped_spills, closed.stuck) == (0, ())
    assert one.ran == ["held", "deadly", "last"]


def test_a_callback_may_close_the_workers() -> None:
    one = Lane()
    done = threading.Event()

    def close(_: Job) -> None:
        one.workers.close(0.0, LONG_S)
        done.set()

    one.workers.submit("load", lambda: None, close)
    assert done.wait(LONG_S)
    eventually(lambda: one.workers.stats().threads == 0)


def test_statistics_are_json_values() -> None:
    with lane() as one:
        found = one.workers.stats().to_json()
    assert found["queued"] == {"load": 0, "spill": 0}
    assert found["threads"] == 1


@pytest.mark.parametrize(("num_threads", "max_spills"), [(0, 1), (1, 0)])
def test_too_few_of_anything_is_refused(num_threads: int, max_spills: int) -> None:
    with pytest.raises(ConfigError, match="at least 1, found 0"):
        Workers(num_threads, max_spills)


@given(st.integers(0, 5000), st.integers(1, 1 << 28), st.integers(1, 16))
def test_shares_of_a_load_cover_it_and_shrink(num: int, object_bytes: int, workers: int) -> None:
    shares = list(load_shares(num, object_bytes, workers))
    assert [n for share in shares for n in range(share.start, share.stop)] == list(range(num))
    sizes = [share.stop - share.start for share in shares]
    assert sizes == sorted(sizes, reverse=True)
    assert all(size == 1 or size * object_bytes <= 32 << 20 for size in sizes)
    each = -(-num // workers)
    assert all(size <= each for size in sizes), "all workers have some"
    assert all(size == each or (size + 1) * object_bytes > 4 << 20 for size in sizes[:-1])

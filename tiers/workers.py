"""Threads that load and spill: loads first, spills not for ever behind them."""

import threading
import time
from collections.abc import Callable
from typing import Final

from kvstrata.core.errors import ConfigError, StoreError

from .jobs import Job, JobQueue, Kind, WorkersClosed, WorkerStats

__all__ = ["JOIN_S", "Workers"]

JOIN_S: Final = 5.0  # longest wait for running jobs on close, after the spills were drained
_KINDS: Final[tuple[Kind, ...]] = ("load", "spill")


class Workers:
    """A fixed number of daemon threads with one queue; safe to use from any thread.

    Args:
        num_threads: at least 1.
        max_spills: how many of them may spill at once, at least 1; with fewer than
            ``num_threads`` a load never waits for a spill.
        clock: seconds that never go back; for ages and waits, not for time limits.

    Raises:
        ConfigError: a number below 1.
    """

    def __init__(
        self, num_threads: int, max_spills: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        for what, number in (("num_threads", num_threads), ("max_spills", max_spills)):
            if number < 1:
                raise ConfigError(f"workers: {what}: expected at least 1, found {number}")
        self._num_threads = num_threads
        self._clock = clock
        self._changed = threading.Condition()
        self._queue = JobQueue(max_spills)
        self._threads: set[threading.Thread] = set()
        self._is_open = True
        self._is_stopping = False
        self._replaced = 0
        self._wait_s = 0.0
        self._max_wait_s = 0.0
        self._ended = dict.fromkeys(_KINDS, 0)
        self._failed = dict.fromkeys(_KINDS, 0)
        self._cancelled = dict.fromkeys(_KINDS, 0)
        with self._changed:
            self._hire()

    def submit(
        self,
        kind: Kind,
        work: Callable[[], None],
        ended: Callable[[Job], None] | None = None,
    ) -> Job:
        """Queue a piece of work.

        Args:
            kind: load or spill.
            work: called on a worker thread; what it raises is kept in ``Job.error``.
            ended: called on that thread, once, when the job has run, failed or not; never for a
                job that was cancelled or dropped.

        Raises:
            StoreError: the workers are closed.

        Mutates: the queue.
        """
        job = Job(kind, work, ended, self._clock(), self._cancel)
        with self._changed:
            if not self._is_open:
                raise StoreError(f"expected open workers for a {kind}, found closed ones")
            self._queue.add(job)
            self._hire()
            self._changed.notify_all()
        return job

    def stats(self) -> WorkerStats:
        """Counts and waits now."""
        with self._changed:
            queue, now_s = self._queue, self._clock()
            oldest_s = queue.oldest_s("spill")
            return WorkerStats(
                load_queue_wait_s=self._wait_s,
                max_load_queue_wait_s=self._max_wait_s,
                oldest_spill_age_s=0.0 if oldest_s is None else now_s - oldest_s,
                queued={kind: len(queue.waiting[kind]) for kind in _KINDS},
                running={kind: len(queue.running[kind]) for kind in _KINDS},
                ended=dict(self._ended),
                failed=dict(self._failed),
                cancelled=dict(self._cancelled),
                threads=sum(thread.is_alive() for thread in self._threads),
                threads_replaced=self._replaced,
            )

    def close(self, drain_spills_s: float, join_s: float = JOIN_S) -> WorkersClosed:
        """Stop: drop the queued loads, spill for a while, drop the rest, end the threads.

        Never waits longer than both times together. A job that still runs then is left to its
        daemon thread and named in what is returned.

        Args:
            drain_spills_s: how long queued spills may still be done, in seconds.
            join_s: how long to wait for running jobs after that, in seconds.

        Mutates: nothing can be submitted any more.
        """
        with self._changed:
            self._is_open = False
            loads = self._drop("load")
            self._changed.wait_for(self._has_drained, max(0.0, drain_spills_s))
            spills = self._drop("spill")
            self._is_stopping = True
            self._changed.notify_all()
            threads = self._threads - {threading.current_thread()}
        deadline_s = time.monotonic() + join_s
        for thread in threads:
            thread.join(max(0.0, deadline_s - time.monotonic()))
        with self._changed:
            stuck = tuple(job for kind in _KINDS for job in self._queue.running[kind])
        return WorkersClosed(loads, spills, stuck)

    def _has_drained(self) -> bool:
        return not self._queue.waiting["spill"] and not self._queue.running["spill"]

    def _drop(self, kind: Kind) -> int:
        jobs = self._queue.clear(kind)
        for job in jobs:
            job.cancelled = True
        self._cancelled[kind] += len(jobs)
        return len(jobs)

    def _cancel(self, job: Job) -> bool:
        with self._changed:
            if self._queue.remove(job):
                job.cancelled = True
                self._cancelled[job.kind] += 1
                self._changed.notify_all()
            return job.cancelled

    def _hire(self) -> None:
        """Start the threads that lack; with none alive, the caller sees why it fails."""
        self._threads = {thread for thread in self._threads if thread.is_alive()}
        while len(self._threads) < self._num_threads and not self._is_stopping:
            thread = threading.Thread(target=self._live, name="kvstrata-tiers", daemon=True)
            try:
                thread.start()
            except RuntimeError:  # the system gives no more threads; the next submit tries again
                if not self._threads:
                    raise
                return
            self._threads.add(thread)

    def _live(self) -> None:
        try:
            while self._work_once():
                pass
        finally:
            with self._changed:
                self._threads.discard(threading.current_thread())
                if not self._is_stopping:
                    self._replaced += 1
                    self._hire()

    def _work_once(self) -> bool:
        with self._changed:
            job = self._take()
        if job is None:
            return False
        try:
            job.work()
        except Exception as error:
            job.error = error
        except BaseException as error:  # asks this thread to end; another takes its place
            job.error = error
            return False
        finally:
            self._end(job)
        return True

    def _take(self) -> Job | None:
        """Wait for the next job; None when it is time to stop."""
        while not self._is_stopping:
            job = self._queue.take()
            if job is not None:
                job.started_s = self._clock()
                if job.kind == "load":
                    self._wait_s = job.started_s - job.queued_s
                    self._max_wait_s = max(self._max_wait_s, self._wait_s)
                return job
            self._changed.wait()
        return None

    def _end(self, job: Job) -> None:
        """Tell that a job has run, then count it. Mutates: the queue and the counts."""
        job.ended_s = self._clock()
        try:
            if job.ended is not None:
                job.ended(job)
        except BaseException as error:
            job.error = error if job.error is None else job.error
        finally:
            with self._changed:
                self._queue.running[job.kind].discard(job)
                self._ended[job.kind] += 1
                self._failed[job.kind] += job.error is not None
                self._changed.notify_all()

"""An engine with a pool of blocks and a clock of its own, driving the admission cap."""

import heapq
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from kvstrata.core.admission import (
    Admission,
    AdmissionConfig,
    Decision,
    Deferred,
    Denied,
    Granted,
    Need,
    Room,
)


@dataclass
class Job:
    """One request: when it comes, what it needs, how long it loads and then runs."""

    arrival_s: float
    need: Need
    load_s: float = 0.0
    run_s: float = 0.1
    deadline_s: float | None = None
    cancelled: Literal["never", "loading", "running"] = "never"


class Engine:
    """Runs jobs to their end; checks the laws of admission at every event."""

    def __init__(self, config: AdmissionConfig, total_blocks: int, jobs: list[Job]) -> None:
        self.admission = Admission(config)
        self.total_blocks = total_blocks
        self.jobs = jobs
        self.held = [0] * len(jobs)  # blocks taken from the pool
        self.granted_s: dict[int, float] = {}
        self.denied: dict[int, Denied] = {}
        self.finished: list[int] = []
        self.loads: list[tuple[float, int]] = []
        self.most_held_while_waiting = 0
        self.now_s = 0.0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._num_events = 0
        for ticket, job in enumerate(jobs):
            self._at(job.arrival_s, partial(self._ask, ticket))

    @property
    def available(self) -> int:
        return self.total_blocks - sum(self.held)

    def run(self, until_s: float = float("inf")) -> None:
        while self._events and self._events[0][0] <= until_s:
            self.now_s, _, act = heapq.heappop(self._events)
            act()
            self._check()

    def _at(self, time_s: float, act: Callable[[], None]) -> None:
        self._num_events += 1
        assert self._num_events < 200_000, "does not come to rest"
        heapq.heappush(self._events, (time_s, self._num_events, act))

    def _check(self) -> None:
        promised = self.admission.promised_blocks
        owed = sum(
            self.jobs[ticket].need.blocks - self.held[ticket]
            for ticket in self.granted_s
            if ticket not in self.finished
        )
        assert promised == owed
        assert 0 <= promised <= self.available

    def _ask(self, ticket: int) -> None:
        job = self.jobs[ticket]
        room = Room(self.total_blocks, self.available)
        before = self.admission.promised_blocks
        decision: Decision = self.admission.ask(ticket, job.need, room, self.now_s, job.deadline_s)
        if isinstance(decision, Granted):
            assert before + job.need.blocks <= room.available_blocks
            assert decision.waited_s == self.now_s - job.arrival_s
            self.granted_s[ticket] = self.now_s
            if job.need.load_bytes:
                self.loads.append((self.now_s, job.need.load_bytes))
            self._at(self.now_s + job.load_s, lambda: self._loaded(ticket))
            return
        assert self.admission.promised_blocks == before
        self.most_held_while_waiting = max(self.most_held_while_waiting, self.held[ticket])
        if isinstance(decision, Denied):
            self.denied[ticket] = decision
            return
        assert isinstance(decision, Deferred)
        assert decision.retry_after_s > 0
        self._at(self.now_s + decision.retry_after_s, lambda: self._ask(ticket))

    def _loaded(self, ticket: int) -> None:
        if self.jobs[ticket].cancelled == "loading":
            self._end(ticket)
            return
        had_load = self.jobs[ticket].need.load_bytes > 0
        assert self.admission.loaded(ticket, self.now_s) == had_load
        assert not self.admission.loaded(ticket, self.now_s)
        self._take(ticket, self.jobs[ticket].need.blocks // 2)
        half = self.jobs[ticket].run_s / 2
        self._at(self.now_s + half, lambda: self._go_on(ticket, half))

    def _go_on(self, ticket: int, half_s: float) -> None:
        if self.jobs[ticket].cancelled == "running":
            self._end(ticket)
            return
        self._take(ticket, self.jobs[ticket].need.blocks - self.held[ticket])
        self._at(self.now_s + half_s, lambda: self._end(ticket))

    def _take(self, ticket: int, blocks: int) -> None:
        assert blocks <= self.available
        assert self.admission.took(ticket, blocks) == blocks
        self.held[ticket] += blocks

    def _end(self, ticket: int) -> None:
        self.held[ticket] = 0
        self.finished.append(ticket)
        assert self.admission.ended(ticket, self.now_s)
        assert not self.admission.loaded(ticket, self.now_s)
        assert not self.admission.ended(ticket, self.now_s)

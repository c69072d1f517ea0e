"""What worker threads do: jobs, the queue that decides which is next, and what is told of them."""

from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

__all__ = [
    "LOADS_IN_A_ROW",
    "SPILL_BYTES",
    "Job",
    "JobQueue",
    "Kind",
    "WorkerStats",
    "WorkersClosed",
    "load_shares",
]

LOADS_IN_A_ROW: Final = 16
SPILL_BYTES: Final = 4 << 20
"""A worker is handed about so many bytes of objects at once to write: enough that they share the
disk's commits, and a load may have to wait for one such batch."""
_LEAST_LOADED: Final = 4 << 20
_MOST_LOADED: Final = 32 << 20

Kind = Literal["load", "spill"]


class Job:
    """A piece of work: queued, then started, then ended; or cancelled before it started.

    Attributes:
        kind: load or spill.
        queued_s: when it was submitted, by the clock of the workers.
        started_s: when it began; None before.
        ended_s: when it ended; None before.
        error: what it raised, if anything.
        cancelled: it will never run.
    """

    __slots__ = (
        "_cancel",
        "cancelled",
        "ended",
        "ended_s",
        "error",
        "kind",
        "queued_s",
        "started_s",
        "work",
    )

    def __init__(
        self,
        kind: Kind,
        work: Callable[[], None],
        ended: "Callable[[Job], None] | None",
        queued_s: float,
        cancel: "Callable[[Job], bool]",
    ) -> None:
        self.kind = kind
        self.work = work
        self.ended = ended
        self.queued_s = queued_s
        self.started_s: float | None = None
        self.ended_s: float | None = None
        self.error: BaseException | None = None
        self.cancelled = False
        self._cancel = cancel

    def cancel(self) -> bool:
        """Take it out of the queue: True if it will never run, False if it runs or has run."""
        return self._cancel(self)


class JobQueue:
    """Says which job is next. Not locked: the workers hold their lock around every call.

    Loads come first. At most ``max_spills`` spills run at once, and a spill that waits is let
    through after ``LOADS_IN_A_ROW`` loads, so that spills do not starve.
    """

    def __init__(self, max_spills: int) -> None:
        self._max_spills = max_spills
        self._loads_in_a_row = 0
        self.waiting: dict[Kind, OrderedDict[Job, None]] = {
            "load": OrderedDict(),
            "spill": OrderedDict(),
        }
        self.running: dict[Kind, set[Job]] = {"load": set(), "spill": set()}

    def add(self, job: Job) -> None:
        """Queue a job behind those of its kind. Mutates: this queue."""
        self.waiting[job.kind][job] = None

    def take(self) -> Job | None:
        """The next job, from now on running; None if none may run now. Mutates: this queue."""
        loads, spills = self.waiting["load"], self.waiting["spill"]
        may_spill = bool(spills) and len(self.running["spill"]) < self._max_spills
        if may_spill and (not loads or self._loads_in_a_row >= LOADS_IN_A_ROW):
            self._loads_in_a_row = 0
            job = spills.popitem(last=False)[0]
        elif loads:
            self._loads_in_a_row += 1 if spills else 0
            job = loads.popitem(last=False)[0]
        else:
            return None
        self.running[job.kind].add(job)
        return job

    def remove(self, job: Job) -> bool:
        """Take a waiting job out; False if it does not wait. Mutates: this queue."""
        waiting = self.waiting[job.kind]
        if job not in waiting:
            return False
        del waiting[job]
        return True

    def clear(self, kind: Kind) -> list[Job]:
        """Take all waiting jobs of a kind out. Mutates: this queue."""
        jobs = list(self.waiting[kind])
        self.waiting[kind].clear()
        return jobs

    def oldest_s(self, kind: Kind) -> float | None:
        """When the oldest job of a kind, running or waiting, was queued; None without one."""
        times = [job.queued_s for job in self.running[kind]]
        times += [job.queued_s for job in list(self.waiting[kind])[:1]]
        return min(times, default=None)


@dataclass(frozen=True)
class WorkerStats:
    """The worker threads at one moment.

    Attributes:
        load_queue_wait_s: how long the load that started last had waited.
        max_load_queue_wait_s: the longest such wait so far.
        oldest_spill_age_s: since when the oldest spill is queued or runs; 0 without one.
        queued: jobs that wait, by kind.
        running: jobs that run, by kind.
        ended: jobs that ran to their end, failed ones included, by kind.
        failed: jobs that raised, by kind.
        cancelled: jobs that never ran, by kind.
        threads: alive now.
        threads_replaced: died and were replaced.
    """

    load_queue_wait_s: float
    max_load_queue_wait_s: float
    oldest_spill_age_s: float
    queued: dict[Kind, int]
    running: dict[Kind, int]
    ended: dict[Kind, int]
    failed: dict[Kind, int]
    cancelled: dict[Kind, int]
    threads: int
    threads_replaced: int

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return asdict(self)


@dataclass(frozen=True)
class WorkersClosed:
    """How closing went.

    Attributes:
        dropped_loads: were queued and never ran.
        dropped_spills: the same.
        stuck: jobs that still ran when the time was over; their threads are left behind.
    """

    dropped_loads: int
    dropped_spills: int
    stuck: tuple[Job, ...]


def load_shares(num_objects: int, object_bytes: int, workers: int) -> Iterator[slice]:
    """Which objects of a load each job reads, in order.

    Large shares, so that workers seldom wait for the interpreter's lock; ever smaller ones, so that
    all of them come to an end together; none larger than what is there for each worker.

    Args:
        num_objects: to be read.
        object_bytes: of each.
        workers: that read.
    """
    least, most = (max(1, size // object_bytes) for size in (_LEAST_LOADED, _MOST_LOADED))
    most = min(most, max(1, -(-num_objects // workers)))
    first = 0
    while first < num_objects:
        fair = -(-(num_objects - first) // (2 * workers))
        end = min(first + min(max(fair, least), most), num_objects)
        yield slice(first, end)
        first = end

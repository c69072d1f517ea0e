"""Events, failures, drift, admission, recovery, the log, queries."""

from __future__ import annotations

from datetime import datetime
from typing import Any, Literal

from pydantic import Field

from .base import Cursor, Histogram, Model, ReasonCount, StateName

__all__ = [
    "Admission",
    "ByteDrift",
    "Drift",
    "Event",
    "Events",
    "FailureCount",
    "Failures",
    "FoundDrift",
    "LogFiles",
    "NumericDrift",
    "Position",
    "ProjectionDrift",
    "QueryAnswer",
    "QueryColumn",
    "QueryInfo",
    "QueryParameter",
    "Recoveries",
    "Recovery",
    "SegmentFile",
    "SnapshotFile",
    "Status",
]


class Event(Model):
    """One event of the log; what concerns a page is there only where it is about one."""

    seqno: int = Field(examples=[48213])
    time: datetime = Field(description="Wall time, UTC.")
    type: str = Field(examples=["PAGE_SEALED"])
    group: str | int | None = None
    page: int | None = None
    generation: int | None = None
    state: StateName | int | None = None
    references: int | None = None
    tier: int = Field(default=0, description="0 is the device.")
    reason: str | int = Field(examples=["NONE"])
    flags: list[str] = Field(default_factory=list)
    payload: dict[str, Any] = Field(
        description="By type, see docs/events.md. Numbers that are none are null."
    )


class Events(Model):
    """Some events, durable ones only, and where to go on."""

    items: list[Event]
    next: Cursor = None
    first_seqno: int = Field(description="The first event that the log still holds.")
    durable_seqno: int = Field(description="The last event that no crash takes back.")


class FailureCount(Model):
    """How often validation failed, by layer, reason and group."""

    layer: int = Field(description="0 bytes, 1 block, 2 kernel ABI, 3 intersection, 4 alignment.")
    reason: str = Field(examples=["CHECKSUM_MISMATCH"])
    group: str | None
    count: int


class Failures(Model):
    """Validation failures: counts of all, and the newest one by one."""

    since_seqno: int = Field(description="The first event that the counts know of.")
    counts: list[FailureCount]
    items: list[Event]
    next: Cursor = None


class FoundDrift(Model):
    """A divergence of the follower's tables from the engine's."""

    kind: str = Field(examples=["slice"])
    slice: int
    num_slices: int
    first_seqno: int
    last_seqno: int
    expected: str
    found: str


class ProjectionDrift(Model):
    """The engine's digests of its tables, compared with the follower's."""

    num_equal: int
    num_different: int
    num_found: int
    found: list[FoundDrift]


class ByteDrift(Model):
    """Sealed pages checksummed again."""

    scrubbed_pages: int
    scrubbed_bytes: int
    bad_pages: int


class NumericDrift(Model):
    """Pages computed again by the engine and compared, of one group and layer."""

    group: str
    kind: str
    layer: int
    num_samples: int
    num_drifted: int
    max_abs: float | None
    cosine: float | None
    tolerance: float | None


class Drift(Model):
    """Measured differences between things that must be equal."""

    projection: ProjectionDrift
    bytes: ByteDrift
    numeric: list[NumericDrift]


class Admission(Model):
    """Decisions of the admission cap since the first event counted."""

    num_requests: int
    num_granted_after_waiting: int
    num_waiting: int
    deferred: list[ReasonCount]
    denied: list[ReasonCount]
    wait_s: Histogram


class Position(Model):
    """Where the follower stands."""

    seqno: int
    durable_seqno: int
    lag_events: int
    lag_seconds: float
    event_time: datetime | None
    segment_id: int
    log_id: str
    restarts: int
    error: str


class Status(Model):
    """The engine's status page: what a log cannot say about itself."""

    head: int
    drained: int
    durable: int
    capacity: int
    is_poisoned: bool
    is_unlogged: bool
    is_closed: bool
    is_stalled: bool
    is_writer_alive: bool
    silence_ms: float
    phase: str
    num_stalls: int
    num_syncs: int
    segment_id: int
    incarnation: int


class Recoveries(Model):
    """Starts of engines on this log, since the first event counted."""

    starts: int
    crashes: int
    kept_pages: int
    lost_pages: int
    replayed_events: int
    seconds: Histogram


class Recovery(Model):
    """How the log and its reader are, and how recoveries went."""

    position: Position
    status: Status | None = Field(description="Null where no engine's memory is.")
    recoveries: Recoveries
    events: list[Event] = Field(description="The last starts, ends and recoveries, newest first.")


class SegmentFile(Model):
    """A segment of the log."""

    segment_id: int
    first_seqno: int
    last_seqno: int
    num_bytes: int
    incarnation: int
    is_sealed: bool
    began: datetime
    is_here: bool = Field(description="Whether the file is still in the directory.")


class SnapshotFile(Model):
    """A stored projection."""

    seqno: int
    num_bytes: int
    taken: datetime
    is_here: bool


class LogFiles(Model):
    """What lies, or lay, in the log's directory."""

    log_id: str
    segments: list[SegmentFile]
    snapshots: list[SnapshotFile]


class QueryParameter(Model):
    """A value that may be set."""

    name: str
    type: Literal["int", "float", "text"]
    default: int | float | str
    meaning: str


class QueryColumn(Model):
    """A column of an answer."""

    name: str
    unit: str
    meaning: str


class QueryInfo(Model):
    """A question that can be asked by name."""

    name: str = Field(examples=["failures"])
    title: str
    parameters: list[QueryParameter]
    columns: list[QueryColumn]


class QueryAnswer(Model):
    """The answer to a query."""

    name: str
    columns: list[QueryColumn]
    rows: list[list[Any]]
    is_cut: bool = Field(description="Whether there were more rows than an answer may have.")

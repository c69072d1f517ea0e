"""Rows of the catalogue of history as its users see them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, NamedTuple

__all__ = [
    "AuditRow",
    "Command",
    "CommandState",
    "Incident",
    "IncidentState",
    "LayoutRow",
    "NoteRow",
    "SegmentRow",
    "SnapshotRow",
    "Who",
]


class CommandState(StrEnum):
    """How far an operator's command has come."""

    PENDING = "pending"
    """It waits for the engine."""
    TAKEN = "taken"
    """The engine has it."""
    DONE = "done"
    """It was carried out, and its event is durable."""
    REFUSED = "refused"
    """The engine would not; the outcome says why."""
    FAILED = "failed"
    """It broke off, or nobody can say whether it was carried out; the outcome says more."""


class IncidentState(StrEnum):
    """How far an incident has come."""

    OPEN = "open"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class Who(NamedTuple):
    """Who asks for something: a token's name and its role."""

    name: str
    role: str


class Command(NamedTuple):
    """One operator's command.

    Attributes:
        id: its number; unique in the catalogue.
        log_id: 32 hex digits of the log whose engine is to carry it out.
        kind: what is to be done.
        arguments: by name, JSON values.
        who: name of who asked.
        idempotency_key: the asker's own name for it, or None.
        state: how far it has come.
        outcome: in words, empty until it has ended.
        changed: pages, leases or bytes that it changed.
        incarnation: life of the engine that took it, 0 for none.
        taken_seqno: everything the log says of it comes after this event.
        ended_seqno: the event that ended it, 0 where there is none.
        created_s: when it was asked for, in seconds of the Unix epoch.
        taken_s: when the engine took it, likewise.
        ended_s: when it ended, likewise.
    """

    id: int
    log_id: str
    kind: str
    arguments: Mapping[str, Any]
    who: str
    idempotency_key: str | None
    state: str
    outcome: str
    changed: int
    incarnation: int
    taken_seqno: int
    ended_seqno: int
    created_s: float
    taken_s: float | None
    ended_s: float | None


class Incident(NamedTuple):
    """Something that a person should know of.

    Attributes:
        id: its number.
        log_id: 32 hex digits of the log it was found in.
        kind: of what sort, such as ``projection_drift``.
        subject: what it is about; one unresolved incident per log, kind and subject.
        what: in words.
        state: how far it has come.
        opened_by: the rule or person that opened it.
        first_seqno: first event that it is about.
        last_seqno: last one so far.
        occurrences: how often it was seen since it was opened.
        opened_s: when, in seconds of the Unix epoch.
        acknowledged_by: who has seen it, or None.
        acknowledged_s: when.
        resolved_by: who ended it, or None.
        resolved_s: when.
    """

    id: int
    log_id: str
    kind: str
    subject: str
    what: str
    state: str
    opened_by: str
    first_seqno: int
    last_seqno: int
    occurrences: int
    opened_s: float
    acknowledged_by: str | None
    acknowledged_s: float | None
    resolved_by: str | None
    resolved_s: float | None


class NoteRow(NamedTuple):
    """What somebody wrote about an incident."""

    id: int
    incident: int
    who: str
    at_s: float
    text: str


class AuditRow(NamedTuple):
    """Who did what, and what came of it."""

    id: int
    log_id: str
    at_s: float
    who: str
    role: str
    action: str
    subject: str
    outcome: str
    detail: Mapping[str, Any]


class LayoutRow(NamedTuple):
    """A layout that a log was made for."""

    digest: str
    name: str
    layout: Mapping[str, Any]
    seen_s: float


class SegmentRow(NamedTuple):
    """A segment seen in a log's directory."""

    log_id: str
    segment_id: int
    first_seqno: int
    last_seqno: int
    num_bytes: int
    incarnation: int
    is_sealed: bool
    began_s: float
    seen_s: float


class SnapshotRow(NamedTuple):
    """A snapshot seen in a log's directory."""

    log_id: str
    seqno: int
    num_bytes: int
    taken_s: float
    seen_s: float

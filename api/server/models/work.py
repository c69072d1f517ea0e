"""What operators do: explanations, commands, incidents, audit; and whether the server is well."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, StrictBool

from .base import Key, Model

__all__ = [
    "AuditEntry",
    "Command",
    "CommandRequest",
    "CommandState",
    "ExplainRequest",
    "Explanation",
    "GroupReach",
    "Health",
    "Incident",
    "IncidentNote",
    "IncidentRequest",
    "IncidentState",
    "Join",
    "NoteRequest",
    "Ready",
    "Way",
]

Seqno = Annotated[int, Field(ge=0, lt=2**53)]
GroupName = Annotated[str, Field(pattern="^[a-z0-9][a-z0-9_.-]*$", max_length=128, examples=["c4"])]
PageNumber = Annotated[int, Field(ge=1, lt=2**31, description="Slot in the group's pool.")]
Generation = Annotated[
    int | None,
    Field(
        ge=0, lt=2**32, description="Only if the slot holds that still; null: what is in it now."
    ),
]
# A key in a request: no `Key | None`, no other spelling.


class ExplainRequest(Model):
    """A prompt whose way is to be explained. It is neither kept nor logged."""

    tokens: list[Annotated[int, Field(ge=0, lt=2**31)]] = Field(
        min_length=1, description="Token ids.", examples=[[1, 15, 48]]
    )
    model: str | None = Field(
        default=None,
        max_length=256,
        description="As the engine's requests name it; null: as the log's last sequence had it.",
    )
    weights: str = Field(default="", max_length=256)
    adapter: str = Field(default="", max_length=256)
    tenant: str = Field(default="", max_length=256)


class GroupReach(Model):
    """How far one group is good for a request."""

    group: str
    kind: str
    tokens: int
    limit: str


class Way(Model):
    """One candidate."""

    source: str
    resume_at: int
    reused_tokens: int
    load_bytes: int
    cost_ms: float
    verdict: str


class Join(Model):
    """A running sequence that computes more of the prefix."""

    sequence: int
    tokens: int
    seconds: float


class Explanation(Model):
    """Why a request hits as far as it does."""

    prompt_tokens: int
    tokens_per_s: int
    bytes_per_s: int
    groups: list[GroupReach]
    ways: list[Way]
    source: str
    resume_at: int
    reused_tokens: int
    limited: str
    join: Join | None = None
    seqno: int = Field(description="The last event that it reckons with.")


class _Command(Model):
    pass


class Quarantine(_Command):
    """Withdraw a sealed page."""

    kind: Literal["quarantine"]
    group: GroupName
    page: PageNumber
    generation: Generation = None


class Unquarantine(_Command):
    """Give a quarantined page back to its pool, once only pins hold it."""

    kind: Literal["unquarantine"]
    group: GroupName
    page: PageNumber
    generation: Generation = None


class DropPrefix(_Command):
    """Evict a prefix and all that hangs from it, where nobody uses it."""

    kind: Literal["drop_prefix"]
    key: Key


class Pin(_Command):
    """Keep a prefix from being evicted while this engine lives."""

    kind: Literal["pin"]
    key: Key


class Unpin(_Command):
    """End the pins of a prefix."""

    kind: Literal["unpin"]
    key: Key


class Scrub(_Command):
    """Checksum sealed pages now."""

    kind: Literal["scrub"]
    max_bytes: Annotated[int, Field(strict=True, ge=1, le=1 << 40)] = 64 << 20


class Snapshot(_Command):
    """Store the tables now."""

    kind: Literal["snapshot"]


class Drain(_Command):
    """Let no new request in, or in again."""

    kind: Literal["drain"]
    drain: StrictBool = True


class ReportDivergence(_Command):
    """Write into the log that a reader's tables went another way."""

    kind: Literal["report_divergence"]
    first_seqno: Seqno
    last_seqno: Seqno
    slice: Seqno = 0


CommandRequest = Annotated[
    Quarantine
    | Unquarantine
    | DropPrefix
    | Pin
    | Unpin
    | Scrub
    | Snapshot
    | Drain
    | ReportDivergence,
    Field(discriminator="kind"),
]
CommandState = Literal["pending", "taken", "done", "refused", "failed"]


class Command(Model):
    """An operator's command and how far it has come."""

    id: int
    kind: str = Field(examples=["quarantine"])
    arguments: dict[str, Any]
    who: str
    state: CommandState
    outcome: str = Field(description="In words; empty until it has ended.")
    changed: int = Field(description="Pages, blocks, pins or bytes that it changed.")
    ended_seqno: int | None = Field(description="The event that ended it.")
    created: datetime
    taken: datetime | None
    ended: datetime | None


IncidentState = Literal["open", "acknowledged", "resolved"]


class IncidentRequest(Model):
    """An incident that a person opens."""

    subject: str = Field(min_length=1, max_length=128, pattern="^[^\\x00-\\x1f]+$")
    what: str = Field(min_length=1, max_length=4000, pattern="^[^\\x00]+$")


class NoteRequest(Model):
    """Something to be written about an incident."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    text: str = Field(min_length=1, max_length=4000, pattern="^[^\\x00]+$")


class IncidentNote(Model):
    """What somebody wrote."""

    who: str
    at: datetime
    text: str


class Incident(Model):
    """Something that a person should know of."""

    id: int
    kind: str = Field(examples=["projection_drift"])
    subject: str = Field(examples=["slice 3"])
    what: str
    state: IncidentState
    opened_by: str
    first_seqno: int
    last_seqno: int
    occurrences: int
    opened: datetime
    acknowledged_by: str | None
    acknowledged: datetime | None
    resolved_by: str | None
    resolved: datetime | None
    notes: list[IncidentNote] | None = Field(
        default=None, description="Only where one incident is asked for."
    )


class AuditEntry(Model):
    """Who did what, and what came of it."""

    id: int
    at: datetime
    who: str
    role: str
    action: str
    subject: str
    outcome: str
    detail: dict[str, Any]


class Health(Model):
    """The server runs."""

    status: Literal["ok"]


class Ready(Model):
    """Whether the server can answer, and why not."""

    is_ready: bool
    seqno: int
    lag_events: int
    lag_seconds: float
    error: str

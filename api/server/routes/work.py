"""What people do: ask why, give commands, work on incidents, read the audit trail."""

from __future__ import annotations

import time
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Response

from kvstrata.core.words import PAGE_GENERATION
from kvstrata.eventstore.history.catalogue import Command, Incident, NoteRow

from ..asking import Limit, RowId
from ..eventrows import when
from ..explained import explain_now
from ..models import work as models
from ..models.base import Listing
from ..problems import Problem
from ..state import History, Operator, Server, ServerState, Viewer, last_seqno
from ..views.pages import page_index

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["work"])
IncidentKind = Annotated[
    str | None, Query(pattern="^[a-z_]+$", max_length=32, description="Only of this kind.")
]


@router.post("/explain", response_model=models.Explanation)
def explain(server: Server, who: Viewer, asked: models.ExplainRequest) -> dict[str, Any]:
    """Why a prompt hits as far as it does: what the engine would do with it now."""
    return explain_now(server, asked)


# commands


@router.post(
    "/commands",
    response_model=models.Command,
    status_code=202,
    responses={200: {"model": models.Command, "description": "It was asked for before."}},
)
def command(
    server: Server,
    who: Operator,
    history: History,
    asked: models.CommandRequest,
    response: Response,
    idempotency_key: Annotated[
        str | None,
        Header(
            pattern="^[!-~]{1,128}$",
            description="Your own name for it: asked again under it, nothing is done twice.",
        ),
    ] = None,
) -> dict[str, Any]:
    """Ask the engine for something; it takes it up at its next call, and answers in the log."""
    log_id = server.epoch
    meant = asked.model_dump(exclude={"kind"})
    arguments = dict(meant)
    if asked.kind in ("quarantine", "unquarantine"):
        arguments = _with_generation(server, arguments)
    if history.commands.num_waiting(log_id) >= server.settings.max_waiting_commands:
        raise Problem(
            429,
            f"expected at most {server.settings.max_waiting_commands} commands that wait for the "
            "engine, found as many; is it running, and does it follow this catalogue?",
            {"Retry-After": "10"},
        )
    found, is_new = history.commands.submit(
        log_id, asked.kind, arguments, who, time.time(), idempotency_key
    )
    said = dict(found.arguments)
    if meant.get("generation", 0) is None:  # asked again, whatever the slot holds by now
        said["generation"] = None
    if found.kind != asked.kind or said != meant:
        raise Problem(
            409,
            f"Idempotency-Key: expected one that was not used for something else, found that of "
            f"command {found.id}",
        )
    if not is_new:
        response.status_code = 200
    response.headers["Location"] = f"/v1/commands/{found.id}"
    return _command(found)


def _with_generation(server: ServerState, arguments: dict[str, Any]) -> dict[str, Any]:
    """Name what the slot holds now: by the time the engine looks it may hold something else."""
    number = server.group_id(arguments["group"])
    with server.tables() as tables:
        index = page_index(tables, number, arguments["page"])
        if index is None:
            raise Problem(404, f"page: expected a slot of {arguments['group']}, found another")
        if arguments["generation"] is None:
            arguments["generation"] = int(tables.pages[index, PAGE_GENERATION])
    return arguments


@router.get("/commands", response_model=Listing[models.Command])
def commands(
    server: Server,
    who: Viewer,
    history: History,
    paging: Limit,
    state: Annotated[models.CommandState | None, Query(description="Only in this state.")] = None,
) -> dict[str, Any]:
    """Commands and how far they have come, newest first."""
    question = f"commands {state}"
    before = paging.start(question) or None
    rows = history.commands.rows(server.epoch, state, before, paging.limit)
    return _listing(server, [_command(row) for row in rows], paging, question)


@router.get("/commands/{number}", response_model=models.Command)
def one_command(server: Server, who: Viewer, history: History, number: RowId) -> dict[str, Any]:
    """One command and how far it has come."""
    found = history.commands.get(server.epoch, number)
    if found is None:
        raise Problem(404, f"command: expected one of this log, found none of number {number}")
    return _command(found)


def _command(row: Command) -> dict[str, Any]:
    return {
        "id": row.id,
        "kind": row.kind,
        "arguments": dict(row.arguments),
        "who": row.who,
        "state": row.state,
        "outcome": row.outcome,
        "changed": row.changed,
        "ended_seqno": row.ended_seqno or None,
        "created": when(row.created_s),
        "taken": None if row.taken_s is None else when(row.taken_s),
        "ended": None if row.ended_s is None else when(row.ended_s),
    }


# incidents


@router.get("/incidents", response_model=Listing[models.Incident])
def incidents(
    server: Server,
    who: Viewer,
    history: History,
    paging: Limit,
    state: Annotated[models.IncidentState | None, Query(description="Only in this state.")] = None,
    kind: IncidentKind = None,
) -> dict[str, Any]:
    """What a person should know of, newest first."""
    question = f"incidents {state} {kind}"
    before = paging.start(question) or None
    rows = history.incidents.rows(server.epoch, state, kind, before, paging.limit)
    return _listing(server, [_incident(row) for row in rows], paging, question)


@router.get("/incidents/{number}", response_model=models.Incident)
def one_incident(server: Server, who: Viewer, history: History, number: RowId) -> dict[str, Any]:
    """One incident with its notes."""
    found = history.incidents.get(server.epoch, number)
    if found is None:
        raise _no_incident(number)
    return _incident(found, history.incidents.notes(number))


@router.post("/incidents", response_model=models.Incident, status_code=201)
def open_incident(
    server: Server,
    who: Operator,
    history: History,
    asked: models.IncidentRequest,
    response: Response,
) -> dict[str, Any]:
    """Open an incident by hand; while one of the same subject is unresolved, it is that one."""
    seqno = server.follower.position().seqno
    found, _ = history.incidents.report(
        server.epoch, "manual", asked.subject, asked.what, who.name, seqno, seqno, time.time()
    )
    response.headers["Location"] = f"/v1/incidents/{found.id}"
    return _incident(found)


@router.post("/incidents/{number}/acknowledge", response_model=models.Incident)
def acknowledge(server: Server, who: Operator, history: History, number: RowId) -> dict[str, Any]:
    """Say that you have seen it and are at it."""
    found = history.incidents.acknowledge(server.epoch, number, who, time.time())
    if found is None:
        raise _no_incident(number)
    return _incident(found)


@router.post("/incidents/{number}/resolve", response_model=models.Incident)
def resolve(server: Server, who: Operator, history: History, number: RowId) -> dict[str, Any]:
    """Say that it is over."""
    found = history.incidents.resolve(server.epoch, number, who, time.time())
    if found is None:
        raise _no_incident(number)
    return _incident(found)


@router.post("/incidents/{number}/notes", response_model=models.Incident, status_code=201)
def note(
    server: Server, who: Operator, history: History, number: RowId, asked: models.NoteRequest
) -> dict[str, Any]:
    """Write something about it, for whoever looks next."""
    if not history.incidents.add_note(server.epoch, number, who, asked.text, time.time()):
        raise _no_incident(number)
    return one_incident(server, who, history, number)


def _no_incident(number: int) -> Problem:
    return Problem(404, f"incident: expected one of this log, found none of number {number}")


def _incident(row: Incident, notes: list[NoteRow] | None = None) -> dict[str, Any]:
    fields = row._asdict()
    del fields["log_id"]
    for name in ("opened", "acknowledged", "resolved"):
        at_s = fields.pop(f"{name}_s")
        fields[name] = None if at_s is None else when(at_s)
    if notes is not None:
        fields["notes"] = [
            {"who": one.who, "at": when(one.at_s), "text": one.text} for one in notes
        ]
    return fields


@router.get("/audit", response_model=Listing[models.AuditEntry])
def audit(server: Server, who: Operator, history: History, paging: Limit) -> dict[str, Any]:
    """Who did what, and what came of it, newest first."""
    before = paging.start("audit") or None
    rows = history.audit.rows(server.epoch, before, paging.limit)
    entries = [
        {
            "id": row.id,
            "at": when(row.at_s),
            "who": row.who,
            "role": row.role,
            "action": row.action,
            "subject": row.subject,
            "outcome": row.outcome,
            "detail": dict(row.detail),
        }
        for row in rows
    ]
    return _listing(server, entries, paging, "audit")


def _listing(
    server: ServerState, items: list[dict[str, Any]], paging: Limit, question: str
) -> dict[str, Any]:
    """Rows of the catalogue; the cursor is the number of the last one."""
    place = items[-1]["id"] if len(items) == paging.limit else 0
    with server.tables() as tables:
        seqno = last_seqno(tables)
    return {"items": items, "next": paging.next(place, question), "seqno": seqno}

"""Events: in pages, and as they happen."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from typing import Annotated, Any

from fastapi import APIRouter, Header, Query, Request
from fastapi.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from kvstrata.core.events import EventType

from ..asking import Limit
from ..eventrows import event_rows
from ..logreader import Wanted
from ..models.history import Event, Events
from ..problems import Problem
from ..state import Server, ServerState, Viewer

__all__ = ["router"]

router = APIRouter(prefix="/v1/events", tags=["events"])
_STREAM_ROWS = 500
_LOOK_S = 0.1
_KEEP_ALIVE_S = 15.0

_TOLD = {
    "type": "object",
    "description": "One server-sent event; its data is an Event as JSON.",
    "properties": {
        "id": {"type": "string", "description": "The seqno.", "examples": ["48213"]},
        "event": {"type": "string", "description": "The type.", "examples": ["PAGE_SEALED"]},
        "data": {"type": "string", "contentMediaType": "application/json"},
    },
}

TypeName = Annotated[
    list[Annotated[str, Query(pattern="^[A-Z_]+$", max_length=64)]] | None,
    Query(max_length=64, description="Only of these types."),
]


@router.get("", response_model=Events, response_model_exclude_none=True)
def events(
    server: Server,
    who: Viewer,
    paging: Limit,
    after: Annotated[
        int, Query(ge=0, lt=2**53, description="Begin behind this event; a cursor wins over it.")
    ] = 0,
    type: TypeName = None,
    group: Annotated[
        str | None, Query(max_length=128, description="Only about pages of this group.")
    ] = None,
) -> dict[str, Any]:
    """Durable events in order; ask again with next, also when there is nothing more for now."""
    wanted = _wanted(server, type, group)
    question = f"events {wanted}"
    start = paging.start(question) or after
    position = server.follower.position()
    server.check_open()
    found = server.recent.forwards(
        start, position.seqno, wanted, paging.limit, server.settings.scan_events
    )
    return {
        "items": event_rows(found.events, found.wall_ns, server.group_names),
        "next": paging.next(found.next_seqno, question),
        "first_seqno": found.first_seqno,
        "durable_seqno": position.durable_seqno,
    }


def _wanted(server: ServerState, types: list[str] | None, group: str | None) -> Wanted:
    unknown = [name for name in types or () if name not in EventType.__members__]
    if unknown:
        known = ", ".join(EventType.__members__)
        raise Problem(404, f"type: expected one of {known}, found {unknown[0]}")
    numbers = tuple(sorted({int(EventType[name]) for name in types or ()}))
    return Wanted(numbers, None if group is None else server.group_id(group))


@router.get(
    "/stream",
    response_class=StreamingResponse,
    responses={200: {"content": {"text/event-stream": {"schema": _TOLD}}}},
)
async def stream(
    server: Server,
    who: Viewer,
    request: Request,
    type: TypeName = None,
    group: Annotated[
        str | None, Query(max_length=128, description="Only about pages of this group.")
    ] = None,
    last_event_id: Annotated[
        str | None,
        Header(
            pattern="^[0-9]{1,15}$",
            description="Go on behind this event; without it, or beyond the log's end, the "
            "stream begins with the next one.",
        ),
    ] = None,
) -> StreamingResponse:
    """Durable events as they happen, as server-sent events whose id is the seqno.

    A client that reads slowly is waited for; nothing is kept for it but its place in the log.
    """
    server.check_open()
    wanted = _wanted(server, type, group)
    position = server.follower.position()
    at = position.seqno if last_event_id is None else int(last_event_id)
    if at > position.durable_seqno:  # of a log that was here before: no event would ever come
        at = position.seqno
    if not server.streams.acquire(blocking=False):
        most = server.settings.max_streams
        raise Problem(
            429,
            f"expected at most {most} clients that tail events, found more",
            {"Retry-After": "5"},
        )
    return _Tail(server, _tail(server, request, wanted, at))


class _Tail(StreamingResponse):
    """A stream that gives its place back, also where its client left before the first event."""

    def __init__(self, server: ServerState, content: AsyncIterator[str]) -> None:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        super().__init__(content, media_type="text/event-stream", headers=headers)
        self._server = server

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._server.streams.release()


async def _tail(
    server: ServerState, request: Request, wanted: Wanted, at: int
) -> AsyncIterator[str]:
    end_s = time.monotonic() + server.settings.stream_max_s
    said_s = 0.0
    epoch = server.epoch
    while time.monotonic() < end_s and not await request.is_disconnected():
        position = server.follower.position()
        if position.epoch != epoch:
            return  # another log: the client's place means nothing in it
        if position.seqno > at:
            before = at
            text, at = await asyncio.to_thread(_piece, server, wanted, at, position.seqno)
            if text:
                said_s = time.monotonic()
                yield text
            if at > before:
                continue
        if time.monotonic() - said_s > _KEEP_ALIVE_S:
            said_s = time.monotonic()
            yield f": at {at}\n\n"
        await asyncio.sleep(_LOOK_S)


def _piece(server: ServerState, wanted: Wanted, after: int, last: int) -> tuple[str, int]:
    """The next events as text, and how far that reaches."""
    found = server.recent.forwards(after, last, wanted, _STREAM_ROWS, server.settings.scan_events)
    lines = []
    for row in event_rows(found.events, found.wall_ns, server.group_names):
        data = Event(**row).model_dump(mode="json", exclude_none=True)
        text = json.dumps(data, separators=(",", ":"))
        lines.append(f"id: {row['seqno']}\nevent: {row['type']}\ndata: {text}\n\n")
    return "".join(lines), max(found.next_seqno, after)

"""Failures, drift, admission, recovery, what lies in the log's directory, queries."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request

from kvstrata.core.errors import StoreError
from kvstrata.eventstore.history.catalogue.holdings import look_at
from kvstrata.eventstore.log.status import LogStatus

from ..asking import Limit
from ..eventrows import event_rows, when
from ..logreader import Wanted, read_backwards
from ..models.base import Listing
from ..models.history import (
    Admission,
    Drift,
    Failures,
    LogFiles,
    QueryAnswer,
    QueryInfo,
    Recovery,
)
from ..problems import Problem
from ..state import FAILURES, Server, Viewer, last_seqno
from ..views import summaries
from ..views.words import finite

__all__ = ["router"]

router = APIRouter(prefix="/v1", tags=["observe"])
_STARTS_SHOWN = 20


@router.get("/failures", response_model=Failures, response_model_exclude_none=True)
def failures(server: Server, who: Viewer, paging: Limit) -> dict[str, Any]:
    """Validation failures: counts of all, and the newest one by one."""
    scan_events = server.settings.scan_events
    before = paging.start("failures")
    server.check_open()
    if before:
        wanted = Wanted(FAILURES)
        found = read_backwards(server.directory, before, wanted, paging.limit, scan_events)
    else:
        found = server.failures.newest(paging.limit, scan_events)
    with server.tables():
        tally = server.follower.tally
        counts, since = summaries.failures(tally, server.layout), tally.since_seqno
    return {
        "since_seqno": since,
        "counts": counts,
        "items": event_rows(found.events, found.wall_ns, server.group_names),
        "next": paging.next(found.next_seqno, "failures"),
    }


@router.get("/drift", response_model=Drift)
def drift(server: Server, who: Viewer) -> dict[str, Any]:
    """Measured differences between things that must be equal: tables, bytes, numbers."""
    server.check_open()
    follower = server.follower
    equal, different = follower.digests
    found = [
        {
            "kind": one.kind,
            "slice": one.slice,
            "num_slices": one.num_slices,
            "first_seqno": one.first_seqno,
            "last_seqno": one.last_seqno,
            "expected": one.expected,
            "found": one.found,
        }
        for one in follower.drift
    ]
    with server.tables():
        tally = follower.tally
        numeric = summaries.numeric_drift(tally, server.layout)
        totals = dict(tally.totals)
    return {
        "projection": {
            "num_equal": equal,
            "num_different": different,
            "num_found": follower.drifts_found,
            "found": found,
        },
        "bytes": {
            "scrubbed_pages": totals["scrubbed_pages"],
            "scrubbed_bytes": totals["scrubbed_bytes"],
            "bad_pages": totals["scrub_bad_pages"],
        },
        "numeric": [{name: finite(value) for name, value in row.items()} for row in numeric],
    }


@router.get("/admission", response_model=Admission)
def admission(server: Server, who: Viewer) -> dict[str, Any]:
    """Decisions of the admission cap, and how long requests waited."""
    with server.tables():
        return summaries.admission(server.follower.tally)


@router.get("/recovery", response_model=Recovery, response_model_exclude_none=True)
def recovery(server: Server, who: Viewer) -> dict[str, Any]:
    """How the log and its reader are, and how recoveries went."""
    server.check_open()
    position = server.follower.position()
    found = server.starts.newest(_STARTS_SHOWN, server.settings.scan_events)
    with server.tables():
        tally = server.follower.tally
        names = ("starts", "crashes", "kept_pages", "lost_pages", "replayed_events")
        recoveries: dict[str, Any] = {name: tally.totals[name] for name in names}
        recoveries["seconds"] = summaries.histogram(tally.histograms["recovery"])
    status = server.follower.status()
    return {
        "position": {
            "seqno": position.seqno,
            "durable_seqno": position.durable_seqno,
            "lag_events": position.lag_events,
            "lag_seconds": position.lag_seconds,
            "event_time": when(position.event_time_ns / 1e9) if position.event_time_ns else None,
            "segment_id": position.segment_id,
            "log_id": position.epoch,
            "restarts": position.restarts,
            "error": position.error,
        },
        "status": None if status is None else _status(status),
        "recoveries": recoveries,
        "events": event_rows(found.events, found.wall_ns, server.group_names),
    }


def _status(status: LogStatus) -> dict[str, Any]:
    return {
        "head": status.head,
        "drained": status.drained,
        "durable": status.durable,
        "capacity": status.capacity,
        "is_poisoned": status.poisoned,
        "is_unlogged": status.unlogged,
        "is_closed": status.closed,
        "is_stalled": status.stalled,
        "is_writer_alive": status.writer_alive,
        "silence_ms": status.silence_ms,
        "phase": status.phase.name,
        "num_stalls": status.num_stalls,
        "num_syncs": status.num_syncs,
        "segment_id": status.segment_id,
        "incarnation": status.incarnation,
    }


@router.get("/log", response_model=LogFiles)
def log(server: Server, who: Viewer) -> dict[str, Any]:
    """Segments and snapshots in the log's directory, and those the catalogue remembers."""
    epoch = server.epoch
    _, segments, snapshots = look_at(server.directory)
    here = {row.segment_id for row in segments}, {row.seqno for row in snapshots}
    try:
        holdings = server.catalogue.get().holdings
        segments = [r for r in holdings.segments(epoch) if r.segment_id not in here[0]] + segments
        snapshots = [r for r in holdings.snapshots(epoch) if r.seqno not in here[1]] + snapshots
    except StoreError:
        pass  # the directory is what counts; what lay there before is left out
    return {
        "log_id": epoch,
        "segments": [
            {
                "segment_id": row.segment_id,
                "first_seqno": row.first_seqno,
                "last_seqno": row.last_seqno,
                "num_bytes": row.num_bytes,
                "incarnation": row.incarnation,
                "is_sealed": row.is_sealed,
                "began": when(row.began_s),
                "is_here": row.segment_id in here[0],
            }
            for row in sorted(segments, key=lambda row: row.segment_id)
        ],
        "snapshots": [
            {
                "seqno": row.seqno,
                "num_bytes": row.num_bytes,
                "taken": when(row.taken_s),
                "is_here": row.seqno in here[1],
            }
            for row in sorted(snapshots, key=lambda row: row.seqno)
        ],
    }


@router.get("/queries", response_model=Listing[QueryInfo])
def queries(server: Server, who: Viewer) -> dict[str, Any]:
    """Questions that can be asked by name, with what may be set."""
    from kvstrata.eventstore.history.analytics import queries as known

    items = [
        {
            "name": query.name,
            "title": query.title,
            "parameters": [
                {
                    "name": parameter.name,
                    "type": parameter.type,
                    "default": parameter.default,
                    "meaning": parameter.meaning,
                }
                for parameter in query.parameters
            ],
            "columns": [column.__dict__ for column in query.columns],
        }
        for query in known()
    ]
    with server.tables() as tables:
        return {"items": items, "seqno": last_seqno(tables)}


@router.get("/queries/{name}", response_model=QueryAnswer)
def query(
    server: Server,
    who: Viewer,
    request: Request,
    name: Annotated[
        str,
        Path(pattern="^[a-z_]+$", max_length=64, description="Of a query.", examples=["failures"]),
    ],
) -> dict[str, Any]:
    """The answer to a query; its parameters are parameters of the URL."""
    from kvstrata.eventstore.history.analytics import queries as known
    from kvstrata.eventstore.history.analytics import run_query

    server.check_open()
    if name not in {query.name for query in known()}:
        raise Problem(404, f"query: expected one of those at /v1/queries, found {name}")
    if not server.queries.acquire(blocking=False):
        most = server.settings.max_queries
        raise Problem(
            429, f"expected at most {most} queries at once, found more", {"Retry-After": "2"}
        )
    try:
        answer = run_query(
            server.directory,
            name,
            dict(request.query_params),
            shared_memory_root=server.shared_memory_root,
            memory_mb=server.settings.query_memory_mb,
        )
    finally:
        server.queries.release()
    return {
        "name": name,
        "columns": [column.__dict__ for column in answer.columns],
        "rows": [[finite(value) for value in row] for row in answer.rows],
        "is_cut": answer.is_cut,
    }

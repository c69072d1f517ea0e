"""Metrics, health, and the page at the root."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Response
from fastapi.responses import HTMLResponse

from kvstrata.dashboard.exporter import CONTENT_TYPE

from ..models.work import Health, Ready
from ..page import page, page_headers
from ..problems import Problem
from ..state import Server, Viewer

__all__ = ["router"]

router = APIRouter(tags=["health"])


@router.get(
    "/metrics",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def metrics(server: Server, who: Viewer) -> Response:
    """Every metric, in Prometheus' text format; see docs/metrics.md."""
    return Response(server.exporter.render(), headers={"Content-Type": CONTENT_TYPE})


@router.get("/healthz", response_model=Health)
def healthz() -> dict[str, Any]:
    """Whether the server runs; needs no token."""
    return {"status": "ok"}


@router.get("/readyz", response_model=Ready, responses={503: {"model": Ready}})
def readyz(server: Server, response: Response) -> dict[str, Any]:
    """Whether there is a log and the follower keeps up with it; needs no token."""
    position = server.follower.position()
    keeps_up = position.lag_seconds <= server.settings.ready_lag_s
    is_ready = server.follower.is_open and keeps_up and not position.error
    if not is_ready:
        response.status_code = 503
    return {
        "is_ready": is_ready,
        "seqno": position.seqno,
        "lag_events": position.lag_events,
        "lag_seconds": position.lag_seconds,
        # What went wrong names files: it is told to who has a token, at /v1/recovery.
        "error": "the follower cannot read the log" if position.error else "",
    }


@router.get(
    "/runbooks/{name}",
    response_class=Response,
    responses={200: {"content": {"text/plain": {"schema": {"type": "string"}}}}},
)
def runbook(
    name: Annotated[
        str,
        Path(
            pattern="^[A-Za-z]+$",
            max_length=64,
            description="Of an alert.",
            examples=["KVCacheByteDrift"],
        ),
    ],
) -> Response:
    """What to do about an alert, in Markdown; alerts link to it, so that it needs no token."""
    from kvstrata.dashboard.alerts import ALERTS
    from kvstrata.dashboard.alerts import runbook as text_of

    if name not in ALERTS:
        raise Problem(404, "runbook: expected the name of an alert, found another")
    return Response(text_of(name), headers={"Content-Type": "text/plain; charset=utf-8"})


@router.get("/", response_class=HTMLResponse)
def root() -> HTMLResponse:
    """A page that draws the pools; it asks this API, and nobody else, for what it shows."""
    return HTMLResponse(page(), headers=page_headers())

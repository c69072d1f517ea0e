"""Errors as RFC 9457 problem details: one shape for all of them."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException

from kvstrata.core.errors import (
    CapacityError,
    ConfigError,
    KvstrataError,
    LogError,
    StaleLease,
    StoreError,
)

__all__ = ["MEDIA_TYPE", "Problem", "add_handlers", "problem_response"]

MEDIA_TYPE: Final = "application/problem+json"
_TITLES: Final = {413: "Content Too Large", 422: "Unprocessable Content"}
"""Phrases that HTTP has changed, as they are now."""
_LOG: Final = logging.getLogger("kvstrata.api")
_STATUS_OF: Final = (
    (ConfigError, 422),
    (StaleLease, 409),
    (StoreError, 503),
    (LogError, 503),
    (CapacityError, 503),
)


class Problem(Exception):
    """What is wrong with a request, to be answered as problem details.

    Args:
        status: HTTP status.
        detail: what was expected, what was found and what to do, for people.
        headers: of the answer.
        errors: places of the request and what is wrong there.
    """

    def __init__(
        self,
        status: int,
        detail: str,
        headers: Mapping[str, str] | None = None,
        errors: Sequence[Mapping[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status = status
        self.detail = detail
        self.headers = dict(headers or {})
        self.errors = [dict(error) for error in errors]


def problem_response(problem: Problem) -> JSONResponse:
    """A problem as an answer."""
    status = problem.status
    title = _TITLES.get(status) or HTTPStatus(status).phrase
    content: dict[str, Any] = {
        "type": f"urn:kvstrata:problem:{title.lower().replace(' ', '-')}",
        "title": title,
        "status": status,
        "detail": problem.detail,
    }
    if problem.errors:
        content["errors"] = problem.errors
    headers = {"Cache-Control": "no-store", **problem.headers}
    return JSONResponse(content, status, headers=headers, media_type=MEDIA_TYPE)


def add_handlers(app: FastAPI) -> None:
    """Answer every error of an app as problem details."""

    @app.exception_handler(Problem)
    def known(request: Request, error: Problem) -> JSONResponse:
        return problem_response(error)

    @app.exception_handler(HTTPException)
    def of_the_framework(request: Request, error: HTTPException) -> JSONResponse:
        detail = _DETAILS.get(error.status_code, "the request cannot be answered")
        return problem_response(Problem(error.status_code, detail, error.headers))

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        # What was found is left out: it may be a prompt.
        errors = [
            {"where": ".".join(str(part) for part in one["loc"]), "expected": str(one["msg"])}
            for one in error.errors()[:20]
        ]
        return problem_response(
            Problem(422, "some of the request is not what is expected", errors=errors)
        )

    @app.exception_handler(KvstrataError)
    def refused(request: Request, error: KvstrataError) -> JSONResponse:
        status = next((status for kind, status in _STATUS_OF if isinstance(error, kind)), 500)
        if status == 422 and not app.state.server.follower.is_open:
            status = 503  # it is not the request that is wrong: there is no log yet
        if status == 500:
            _LOG.error("%s failed: %s", request.url.path, error)
        return problem_response(Problem(status, str(error)))

    @app.exception_handler(Exception)
    def unexpected(request: Request, error: Exception) -> JSONResponse:
        return problem_response(
            Problem(500, "the server failed; its log says more; report it if it happens again")
        )


_DETAILS: Final = {
    404: "there is nothing under this path; /openapi.json lists what there is",
    405: "this path knows other methods; the Allow header names them",
    400: "the request cannot be read",
}

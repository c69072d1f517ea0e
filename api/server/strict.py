"""Parameters that a route does not know are refused: a misspelt filter must not filter nothing."""

from __future__ import annotations

from typing import Final

from fastapi import Request

from .problems import Problem

__all__ = ["FREE_PATHS", "refuse_unknown"]

FREE_PATHS: Final = frozenset({"/v1/queries/{name}"})
"""Routes whose parameters are checked by what they ask for."""


def refuse_unknown(request: Request) -> None:
    """Check the names of a request's query parameters.

    Raises:
        Problem: one of them is not of this route (422).
    """
    if not request.query_params:
        return
    path = request.scope["route"].path
    if path in FREE_PATHS:
        return
    operation = request.app.openapi()["paths"][path][request.method.lower()]
    parameters = operation.get("parameters", ())
    known = sorted(one["name"] for one in parameters if one["in"] == "query")
    if not set(request.query_params) <= set(known):
        expected = f"one of {', '.join(known)}" if known else "no parameters"
        raise Problem(422, f"query: expected {expected}, found another")

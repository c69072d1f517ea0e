"""The OpenAPI document: every route with its errors, tokens and examples."""

from __future__ import annotations

from typing import Any, Final

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from .gate import OPEN_PATHS
from .models.base import ProblemDetails
from .problems import MEDIA_TYPE

__all__ = ["document"]

_ERRORS: Final = {
    "400": "The request cannot be read.",
    "401": "No known token.",
    "403": "The token's role does not allow it, or the request comes from another web page.",
    "404": "There is no such thing.",
    "405": "The path knows other methods.",
    "408": "The request took too long to arrive.",
    "409": "It does not fit what is there, or the cursor is of another question.",
    "413": "The request is too large.",
    "422": "The request is not what is expected.",
    "429": "Too many requests.",
    "500": "The server failed.",
    "503": "The log or the catalogue is away.",
}
_DESCRIPTION: Final = (
    "What a follower of the event log knows of a KV cache, what was found wrong with it, and "
    "commands to its engine. Only durable events are told of. No answer holds token ids or the "
    "text of prompts. Errors are problem details (RFC 9457)."
)


def document(app: FastAPI) -> dict[str, Any]:
    """Make the document of an app; it is kept from then on."""
    if app.openapi_schema:
        return app.openapi_schema
    found: dict[str, Any] = get_openapi(
        title="kvstrata admin API",
        version=app.version,
        description=_DESCRIPTION,
        routes=app.routes,
    )
    components = found.setdefault("components", {})
    schemas = components.setdefault("schemas", {})
    for name in ("HTTPValidationError", "ValidationError"):
        schemas.pop(name, None)
    schemas["ProblemDetails"] = ProblemDetails.model_json_schema(
        ref_template="#/components/schemas/{model}"
    )
    components["securitySchemes"] = {
        "token": {"type": "http", "scheme": "bearer", "description": "From the token file."}
    }
    for path, methods in found["paths"].items():
        for operation in methods.values():
            _complete(path, operation)
    app.openapi_schema = found
    return found


def _complete(path: str, operation: dict[str, Any]) -> None:
    responses = operation["responses"]
    responses.pop("422", None)
    content = {MEDIA_TYPE: {"schema": {"$ref": "#/components/schemas/ProblemDetails"}}}
    for status, description in _ERRORS.items():
        known = responses.setdefault(status, {"description": description, "content": {}})
        known.setdefault("content", {}).update(content)
    for parameter in operation.get("parameters", ()):
        parameter["schema"] = _without_null(parameter["schema"])
    if path not in OPEN_PATHS:
        operation["security"] = [{"token": []}]


def _without_null(schema: dict[str, Any]) -> dict[str, Any]:
    """A parameter is left out, not null: URLs and headers know no null."""
    kinds: list[dict[str, Any]] = [
        one for one in schema.get("anyOf", ()) if one.get("type") != "null"
    ]
    if len(kinds) != 1:
        return schema
    return {name: value for name, value in schema.items() if name != "anyOf"} | kinds[0]

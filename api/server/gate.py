"""The gate before every route: who asks, how often, from where, and how much they send.

It answers before anything of a request is parsed, so that nobody unknown can make the server work.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from .access import Access
from .problems import Problem, problem_response
from .settings import ServerSettings, is_loopback

__all__ = ["OPEN_PATHS", "Buckets", "Gate"]

OPEN_PATHS: Final = frozenset({"/", "/healthz", "/readyz", "/runbooks/{name}"})
"""Routes that need no token: they tell nothing of what is cached."""
_OPEN: Final = tuple(path.partition("{")[0] for path in OPEN_PATHS if "{" in path)
_MOST_CLIENTS: Final = 10_000
_READING: Final = ("GET", "HEAD", "OPTIONS")


class Buckets:
    """A token bucket per client; the clients seen last are remembered.

    Args:
        per_s: requests of one client in the long run.
        burst: at once.
    """

    def __init__(self, per_s: float, burst: int) -> None:
        self._per_s = per_s
        self._burst = burst
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, client: str, now_s: float) -> float:
        """Take one request; 0, or the seconds after which there is room for it."""
        left, at_s = self._left.pop(client, (float(self._burst), now_s))
        left = min(self._burst, left + (now_s - at_s) * self._per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / self._per_s
        self._left[client] = (left - 1 if not wait_s else left, now_s)
        if len(self._left) > _MOST_CLIENTS:
            self._left.popitem(last=False)
        return wait_s


class Gate:
    """An ASGI middleware.

    Args:
        app: what stands behind it.
        access: who may come in.
        settings: limits.
    """

    def __init__(self, app: ASGIApp, access: Access, settings: ServerSettings) -> None:
        self._app = app
        self._access = access
        self._settings = settings
        self._buckets = Buckets(settings.requests_per_s, settings.burst)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through, or answer it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            headers = Headers(scope=scope)
            self._check(scope, headers)
            body = await self._body(scope, headers, receive)
        except Problem as problem:
            await problem_response(problem)(scope, receive, send)
            return
        await self._app(scope, _replayed(body, receive), send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        who = self._access.who(headers.get("authorization"))
        client = scope.get("client")
        name = who.name if who is not None and not self._access.is_open else ""
        address = str(client[0]) if client else "unknown"
        wait_s = self._buckets.take(name or address, time.monotonic())
        if wait_s:
            rate = self._settings.requests_per_s
            raise Problem(
                429,
                f"expected at most {rate:g} requests per second, found more",
                {"Retry-After": str(int(wait_s) + 1)},
            )
        if self._access.is_open:
            _check_is_local(scope, headers)
        path = str(scope["path"]).removeprefix(scope.get("root_path", ""))  # it may be mounted
        if who is None and path not in OPEN_PATHS and not path.startswith(_OPEN):
            raise Problem(
                401,
                "expected a known token in the header Authorization: Bearer TOKEN, found none",
                {"WWW-Authenticate": 'Bearer realm="kvstrata"'},
            )
        scope.setdefault("state", {})["who"] = who

    async def _body(self, scope: Scope, headers: Headers, receive: Receive) -> bytes:
        most = self._settings.max_body_bytes
        said = headers.get("content-length", "")
        if said.isdecimal() and int(said) > most:
            raise _too_large(most)
        if not said and "transfer-encoding" not in headers and scope["method"] in _READING:
            return b""
        chunks: list[bytes] = []
        size = 0
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                while True:
                    message = await receive()
                    if message["type"] == "http.disconnect":
                        raise Problem(400, "the connection ended before the request")
                    chunk: bytes = message.get("body", b"")
                    size += len(chunk)
                    if size > most:
                        raise _too_large(most)
                    chunks.append(chunk)
                    if not message.get("more_body", False):
                        return b"".join(chunks)
        except TimeoutError:
            raise Problem(
                408,
                f"expected the whole request within {self._settings.body_timeout_s:g} s",
                {"Connection": "close"},
            ) from None


def _too_large(most: int) -> Problem:
    detail = f"expected a request of at most {most:,} bytes, found a larger one"
    return Problem(413, detail, {"Connection": "close"})


def _check_is_local(scope: Scope, headers: Headers) -> None:
    """Without tokens a web page must not reach the server through its reader's browser.

    One that names itself in DNS with this machine's address shows another Host; one that posts
    across origins shows its own Origin.
    """
    host = headers.get("host", "")
    if not is_loopback(_hostname(f"//{host}")):
        raise Problem(
            403,
            "expected a loopback name as Host, since this server has no token file, found "
            "another; ask for http://127.0.0.1 or http://localhost",
        )
    origin = headers.get("origin")
    if origin is not None and scope["method"] not in _READING and urlsplit(origin).netloc != host:
        raise Problem(403, "expected a request of this origin, found one of another web page")


def _hostname(url: str) -> str:
    try:
        return urlsplit(url).hostname or ""
    except ValueError:
        return ""


def _replayed(body: bytes, receive: Receive) -> Receive:
    """Give the body that was read already, then what the connection says."""
    is_given = False

    async def again() -> Message:
        nonlocal is_given
        if not is_given:
            is_given = True
            return {"type": "http.request", "body": body, "more_body": False}
        return await receive()

    return again

"""Serving the admin API by itself, so that slow clients cannot hold it up."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from kvstrata.core.errors import ConfigError
from kvstrata.eventstore.history.follower import Follower
from kvstrata.eventstore.log.tmpfs import DEFAULT_ROOT

from .app import create_app
from .settings import ServerSettings

__all__ = ["AdminServer", "open_server"]

_HEADER_TIMEOUT_S: Final = 10.0
_KEEP_ALIVE_S: Final = 5
_BACKLOG: Final = 2048
_MOST_CONNECTIONS: Final = 512
_MOST_HEADER_BYTES: Final = 1 << 15
_END_S: Final = 3


class _ImpatientProtocol(H11Protocol):
    """HTTP/1.1 that ends a connection whose request's head does not come in time."""

    _impatience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._impatience is None and self._is_idle():
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._impatience is not None:
            self._impatience.cancel()
        super().connection_lost(exc)

    def _is_idle(self) -> bool:
        cycle: Any = self.cycle
        return cycle is None or bool(cycle.response_complete)

    def _wait_for_head(self) -> None:
        self._impatience = self.loop.call_later(_HEADER_TIMEOUT_S, self._give_up, self.cycle)

    def _give_up(self, cycle: Any) -> None:
        self._impatience = None
        if self.cycle is cycle and self._is_idle() and not self.transport.is_closing():
            self.transport.close()


class _Server(uvicorn.Server):
    """Says when it listens."""

    def __init__(self, config: uvicorn.Config, says: Callable[[int], None]) -> None:
        super().__init__(config)
        self._says = says

    async def startup(self, sockets: Any = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._says(self.servers[0].sockets[0].getsockname()[1])


class AdminServer:
    """A follower and its API, ready to run.

    Attributes:
        follower: of the log.
        app: the API.
    """

    def __init__(
        self, directory: Path, settings: ServerSettings, shared_memory_root: Path = DEFAULT_ROOT
    ) -> None:
        memory: Path | None = directory.absolute().with_name(f"{directory.name}.follower")
        if memory is not None and not os.access(memory.parent, os.W_OK):
            memory = None  # counts begin with the log's first event again
        self.follower = Follower(directory, shared_memory_root=shared_memory_root, memory=memory)
        self.app = create_app(self.follower, settings, shared_memory_root)
        self._settings = settings
        self._server: _Server | None = None

    def run(self, says: Callable[[int], None] = lambda _: None) -> None:
        """Serve until a signal, or :meth:`stop`.

        Args:
            says: told the port once it listens.

        Raises:
            ConfigError: the address cannot be listened on.
        """
        config = uvicorn.Config(
            self.app,
            host=self._settings.host,
            port=self._settings.port,
            http=_ImpatientProtocol,
            ws="none",
            lifespan="on",
            log_level="warning",
            access_log=False,  # a URL may name keys; the audit trail has what matters
            server_header=False,
            timeout_keep_alive=_KEEP_ALIVE_S,
            timeout_graceful_shutdown=_END_S,
            limit_concurrency=_MOST_CONNECTIONS,
            h11_max_incomplete_event_size=_MOST_HEADER_BYTES,
        )
        self._server = _Server(config, says)
        try:
            listening = self._listen()
            self.follower.start()
            self._server.run(sockets=[listening])
        finally:
            self.close()

    def _listen(self) -> socket.socket:
        host, port = self._settings.host, self._settings.port
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            return socket.create_server((host, port), family=family, backlog=_BACKLOG)
        except OSError as error:
            raise ConfigError(
                f"expected to listen on {host} port {port}, found it taken or not allowed "
                f"({error}); choose another with --host and --port"
            ) from error

    def stop(self) -> None:
        """End :meth:`run`, from any thread."""
        if self._server is not None:
            self._server.should_exit = True

    def close(self) -> None:
        """Close the follower and the catalogue; closing twice is allowed."""
        self.app.state.close()
        self.follower.close()


@contextmanager
def open_server(
    directory: Path, settings: ServerSettings, shared_memory_root: Path = DEFAULT_ROOT
) -> Iterator[AdminServer]:
    """A server that is closed in the end, also where it never ran."""
    server = AdminServer(directory, settings, shared_memory_root)
    try:
        yield server
    finally:
        server.close()

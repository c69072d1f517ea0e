"""What the routes work with, and how they get it."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

from fastapi import Depends, Request

from kvstrata.core.arena import Tables
from kvstrata.core.errors import ConfigError, StoreError
from kvstrata.core.events import EventType
from kvstrata.core.layout import CacheLayout
from kvstrata.core.words import META_LAST_SEQNO
from kvstrata.eventstore.history.catalogue import Catalogue, Who
from kvstrata.eventstore.history.follower import Follower

from .access import Access, Role
from .clock import EventClock
from .place import CataloguePlace
from .problems import Problem
from .recent import RareEvents, RecentEvents
from .settings import ServerSettings

if TYPE_CHECKING:
    from kvstrata.dashboard.exporter import Exporter

__all__ = ["FAILURES", "History", "Operator", "Server", "ServerState", "Viewer", "last_seqno"]

FAILURES: Final = (int(EventType.VALIDATION_FAILED),)
STARTS: Final = (
    int(EventType.MANAGER_OPENED),
    int(EventType.MANAGER_CLOSED),
    int(EventType.RECOVERY_BEGUN),
    int(EventType.RECOVERY_ENDED),
)


@dataclass
class ServerState:
    """One server's parts.

    Attributes:
        follower: what is served.
        directory: its log.
        shared_memory_root: where the engine's ring is.
        settings: limits.
        access: who may do what.
        catalogue: the catalogue of history, which may be away.
        exporter: renders metrics.
        clock: when events happened.
        recent: the last events.
        starts: starts and ends of engines.
        failures: validation failures.
        streams: free places for clients that tail events.
        queries: free places for analytical queries.
    """

    follower: Follower
    directory: Path
    shared_memory_root: Path
    settings: ServerSettings
    access: Access
    catalogue: CataloguePlace
    exporter: Exporter
    clock: EventClock
    recent: RecentEvents = field(init=False)
    starts: RareEvents = field(init=False)
    failures: RareEvents = field(init=False)
    streams: threading.Semaphore = field(init=False)
    queries: threading.Semaphore = field(init=False)

    def __post_init__(self) -> None:
        self.recent = RecentEvents(self.follower)
        self.starts = RareEvents(self.follower, STARTS)
        self.failures = RareEvents(self.follower, FAILURES)
        self.streams = threading.Semaphore(self.settings.max_streams)
        self.queries = threading.Semaphore(self.settings.max_queries)

    @property
    def layout(self) -> CacheLayout:
        """The layout of the log. Raises Problem (503) while there is no log."""
        self.check_open()
        return self.follower.layout

    @property
    def group_names(self) -> tuple[str, ...]:
        """Names of the layout's groups by id. Raises Problem (503) while there is no log."""
        return tuple(group.name for group in self.layout.groups)

    @property
    def tier_names(self) -> tuple[str, ...]:
        """Names of the tiers below the device. Raises Problem (503) while there is no log."""
        self.check_open()
        return self.follower.tier_names

    @property
    def epoch(self) -> str:
        """Id of the log. Raises Problem (503) while there is no log."""
        self.check_open()
        return self.follower.position().epoch

    def check_open(self) -> None:
        """Refuse to answer while there is no log. Raises Problem (503)."""
        if not self.follower.is_open:
            error = self.follower.position().error
            raise Problem(503, f"expected a log to follow, found none yet: {error}")

    @contextmanager
    def tables(self) -> Iterator[Tables]:
        """The tables, held still; copy what is needed and leave at once."""
        self.check_open()
        with self.follower.lock:
            yield self.follower.tables

    def group_id(self, name: str) -> int:
        """Number of a group.

        Raises:
            Problem: there is none of that name (404).
        """
        try:
            return self.layout.group_id(name)
        except ConfigError as error:
            raise Problem(404, str(error)) from error


def last_seqno(tables: Tables) -> int:
    """The last event that tables tell of."""
    return int(tables.meta[META_LAST_SEQNO])


def _server(request: Request) -> ServerState:
    state: ServerState = request.app.state.server
    return state


def _viewer(request: Request) -> Who:
    who: Who | None = request.state.who
    if who is None:  # the gate let it in only where the path is open
        raise Problem(401, "expected a known token, found none")
    return who


def _operator(request: Request) -> Who:
    who = _viewer(request)
    if who.role != Role.OPERATOR:
        _note_attempt(_server(request), who, f"{request.method} {request.url.path}")
        raise Problem(
            403, f"expected a token with the role {Role.OPERATOR}, found the role {who.role}"
        )
    return who


def _note_attempt(server: ServerState, who: Who, action: str) -> None:
    """Write into the audit trail that somebody asked for what they may not, where it is there."""
    if not server.follower.is_open:
        return
    with suppress(StoreError):
        audit = server.catalogue.get().audit
        audit.add(server.epoch, time.time(), who, action[:64], "", "forbidden")


def _history(request: Request) -> Iterator[Catalogue]:
    with _server(request).catalogue.used() as found:
        yield found


Server = Annotated[ServerState, Depends(_server)]
"""The server's parts."""
Viewer = Annotated[Who, Depends(_viewer)]
"""Who asks; any role."""
Operator = Annotated[Who, Depends(_operator)]
"""Who asks; an operator."""
History = Annotated[Catalogue, Depends(_history)]
"""The catalogue, open; 503 where it is away."""

"""The catalogue of history: what people and rules said about logs, and what lay in them.

SQLite serves the processes of one machine, PostgreSQL a fleet; one catalogue may serve many logs,
each by its id. It is no part of any engine: where it is away, engines go on.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final, Self

from kvstrata.eventstore.database import open_engine

from .audit import Audit
from .commands import Commands
from .holdings import Holdings
from .incidents import Incidents
from .session import Session
from .tables import MIGRATIONS

__all__ = ["Catalogue", "default_url"]

_SUFFIX: Final = ".catalogue.sqlite"


def default_url(directory: Path) -> str:
    """The URL of a log's catalogue where none is named: an SQLite file beside its directory."""
    place = Path(directory).absolute()
    return f"sqlite:///{place.with_name(place.name + _SUFFIX)}"


class Catalogue:
    """One open catalogue; threads and processes may share its database.

    Its parts raise `StoreError` where the database fails.

    Attributes:
        where: the URL without its password.
        commands: what operators asked for.
        incidents: what was found.
        audit: who did what.
        holdings: layouts, segments and snapshots seen.
    """

    def __init__(self, session: Session) -> None:
        self.where = session.where
        self.commands = Commands(session)
        self.incidents = Incidents(session)
        self.audit = Audit(session)
        self.holdings = Holdings(session)
        self._session = session

    @classmethod
    def open(cls, url: str) -> Self:
        """Open a catalogue, made or brought up to date where necessary.

        Args:
            url: ``sqlite:///PATH`` or ``postgresql+psycopg://USER@HOST/DATABASE``.

        Raises:
            ConfigError: no such URL, or the driver is not installed.
            StoreError: the database cannot be used, or a later version has made it.
        """
        return cls(Session(*open_engine(url, MIGRATIONS)))

    @property
    def is_current(self) -> bool:
        """Whether its place still holds what was opened: a file may be deleted or replaced."""
        return self._session.is_current

    def close(self) -> None:
        """Close its connections; calling it again does nothing."""
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: Any) -> None:
        self.close()

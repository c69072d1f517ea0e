"""One open database, shared by the parts of the catalogue."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table
from sqlalchemy.dialects import postgresql, sqlite

from kvstrata.core.errors import StoreError
from kvstrata.eventstore.database import explained, writing

from .tables import MIGRATIONS

__all__ = ["Session"]


class Session:
    """Reading and writing transactions of one database; threads may share it.

    Args:
        engine: connected and migrated.
        where: the URL without its password, for messages.
    """

    def __init__(self, engine: Engine, where: str) -> None:
        self.where: Final = where
        self._engine: Final = engine
        self._is_closed = False

    @contextmanager
    def reading(self) -> Iterator[Connection]:
        """A transaction that reads. Raises StoreError where the database fails."""
        self._check_open()
        with explained(self.where, MIGRATIONS), self._engine.connect() as connection:
            yield connection

    @contextmanager
    def writing(self) -> Iterator[Connection]:
        """A transaction that writes. Raises StoreError where the database fails."""
        self._check_open()
        with explained(self.where, MIGRATIONS), writing(self._engine) as connection:
            yield connection

    def insert(self, table: Table) -> Any:
        """An insert statement that knows ``on_conflict_do_...``, as both dialects have it."""
        make: Any = sqlite.insert
        if self._engine.dialect.name == "postgresql":
            make = postgresql.insert
        return make(table)

    def close(self) -> None:
        """Close the connections; calling it again does nothing."""
        self._is_closed = True
        self._engine.dispose()

    def _check_open(self) -> None:
        if self._is_closed:
            raise StoreError(f"catalogue {self.where}: expected it open, found it closed")

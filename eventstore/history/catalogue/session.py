"""One open database, shared by the parts of the catalogue."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Connection, Engine, Table, select
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
        is_file = engine.dialect.name == "sqlite"
        self._path: Final = engine.url.database if is_file else None
        self._opened: Final = self._file()

    @property
    def is_current(self) -> bool:
        """Whether an SQLite file is still the one that was opened; a server's database is."""
        return self._file() == self._opened

    def _file(self) -> tuple[int, int] | None:
        try:
            found = os.stat(self._path or "")
        except OSError:
            return None
        return found.st_dev, found.st_ino

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

    def newest(
        self, table: Table, log_id: str, before: int | None, limit: int, **equal: str | None
    ) -> list[tuple[Any, ...]]:
        """Rows of a log, newest first.

        Args:
            table: with the columns ``id`` and ``log_id``.
            log_id: of the log.
            before: only rows with a smaller number.
            limit: at most so many.
            equal: columns that must have a value; None for any.
        """
        query = select(table).where(table.c.log_id == log_id)
        for column, value in equal.items():
            if value is not None:
                query = query.where(table.c[column] == value)
        if before is not None:
            query = query.where(table.c.id < before)
        with self.reading() as connection:
            found = connection.execute(query.order_by(table.c.id.desc()).limit(limit))
            return [tuple(row) for row in found]

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

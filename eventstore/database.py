"""The databases of catalogues: how one is opened and migrated, and what its errors mean.

Every catalogue brings its own migrations and its own table of revisions, so that several may
stand in one database.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from kvstrata.core.errors import ConfigError, StoreError

__all__ = ["Migrations", "explained", "open_engine", "writing"]

_BUSY_S: Final = 5
_LOCK_KEY: Final = int.from_bytes(b"kvstrata", "big")  # of PostgreSQL's advisory lock
_WRITES: Final = "kvstrata_writes"
_ALEMBIC: Final = threading.Lock()  # Alembic keeps what it works on in modules of its own

_ADVICE: Final = {
    "locked": f"another process has written it for more than {_BUSY_S} s; try again",
    "is full": "make room on its disk",
    "readonly": "let this user write the file and its folder",
    "unable to open": "its folder must exist, and this user must be able to write there",
    "permission denied": "grant this user what the catalogue needs: CREATE on the schema",
    "authentication failed": "correct the user or the password in the URL",
    "does not exist": "create it, or correct the URL",
    "connection": "start the server, or correct the URL",
    "timeout": "look for what holds it: a long transaction or a lock",
}


@dataclass(frozen=True)
class Migrations:
    """What one catalogue brings to its database.

    Attributes:
        folder: Alembic's folder of it.
        revision: the migration that this version of kvstrata brings a database to.
        version_table: where the database keeps its revision.
        when_damaged: what to do with a file that is no database any more.
        when_later: what to do with a database that a later version has made.
        otherwise: what to do about an error that nothing is known of.
        synchronous: of SQLite: FULL where no acknowledged row may be lost, NORMAL where a power
            loss may take the last ones.
    """

    folder: Path
    revision: str
    version_table: str
    when_damaged: str
    when_later: str
    otherwise: str
    synchronous: str

    def advice(self, found: str) -> str:
        """What to do about a database's message."""
        damaged = {"not a database": self.when_damaged, "malformed": self.when_damaged}
        signs: Mapping[str, str] = damaged | _ADVICE
        does = (what for sign, what in signs.items() if sign in found.lower())
        return next(does, self.otherwise)


def open_engine(url: str, migrations: Migrations) -> tuple[Engine, str]:
    """Connect to a catalogue's database and bring its schema up to date.

    Args:
        url: ``sqlite:///PATH`` or ``postgresql+psycopg://USER@HOST/DATABASE``.
        migrations: of the catalogue.

    Returns:
        The engine, and the URL without its password.

    Raises:
        ConfigError: no such URL, or the driver is not installed.
        StoreError: the database cannot be used, or a later version has made it.
    """
    parsed = _parse(url)
    where = parsed.render_as_string(hide_password=True)
    is_file = parsed.get_backend_name() == "sqlite"
    engine = _sqlite(parsed, migrations.synchronous) if is_file else _postgresql(parsed)
    try:
        with explained(where, migrations):
            _migrate(engine, where, migrations)
    except BaseException:
        engine.dispose()
        raise
    return engine, where


@contextmanager
def explained(where: str, migrations: Migrations) -> Iterator[None]:
    """Turn a database's error into a `StoreError` that says what to do."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        found = " ".join(str(getattr(error, "orig", None) or error).split())
        raise StoreError(f"catalogue {where}: {found}; {migrations.advice(found)}") from error


@contextmanager
def writing(engine: Engine) -> Iterator[Connection]:
    """A transaction that writes: on SQLite it has the right to from its beginning."""
    with engine.execution_options(**{_WRITES: True}).begin() as connection:
        yield connection


def _parse(url: str) -> URL:
    expected = "expected sqlite:///PATH or postgresql+psycopg://USER@HOST/DATABASE"
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        shown = "no URL" if "@" in url else repr(url)  # it may hold a password
        raise ConfigError(f"catalogue: {expected}, found {shown}") from error
    if parsed.drivername in ("postgresql", "postgres"):
        parsed = parsed.set(drivername="postgresql+psycopg")
    if parsed.drivername in ("sqlite", "sqlite+pysqlite"):
        if not parsed.database or parsed.database == ":memory:" or "mode" in parsed.query:
            raise ConfigError(f"catalogue: {expected}, found an SQLite database without a file")
    elif parsed.drivername != "postgresql+psycopg":
        raise ConfigError(f"catalogue: {expected}, found a URL of {parsed.drivername!r}")
    return parsed


def _sqlite(url: URL, synchronous: str) -> Engine:
    engine = create_engine(url, connect_args={"timeout": _BUSY_S}, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # SQLAlchemy's "begin" below is the only one
        _use_write_ahead_log(connection)
        connection.execute(f"PRAGMA synchronous={synchronous}")
        connection.execute("PRAGMA foreign_keys=ON")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        # A transaction that reads first and writes then would fail at once where another
        # process wrote in between; one that takes the right to write first waits its turn.
        writes = connection.get_execution_options().get(_WRITES, False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


def _use_write_ahead_log(connection: sqlite3.Connection) -> None:
    # SQLite does not wait here for another process that switches the mode at the same time.
    deadline_s = time.monotonic() + _BUSY_S
    while True:
        try:
            connection.execute("PRAGMA journal_mode=WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline_s:
                raise
            time.sleep(0.02)


def _postgresql(url: URL) -> Engine:
    settings = {"connect_timeout": "5", "application_name": "kvstrata"}
    settings |= {"options": "-c lock_timeout=5s -c statement_timeout=60s"}
    own = {name: value for name, value in settings.items() if name not in url.query}
    try:
        return create_engine(url, connect_args=own, hide_parameters=True, pool_pre_ping=True)
    except ImportError as error:
        raise ConfigError(
            "catalogue: expected psycopg for a postgresql URL, found none: "
            "pip install 'kvstrata[postgres]'"
        ) from error


def _migrate(engine: Engine, where: str, migrations: Migrations) -> None:
    with engine.connect() as connection:
        if _revision(connection, migrations) == migrations.revision:
            return
    with _ALEMBIC, writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        found = _revision(connection, migrations)
        if found != migrations.revision:
            _upgrade(connection, found, where, migrations)


def _revision(connection: Connection, migrations: Migrations) -> str | None:
    if not inspect(connection).has_table(migrations.version_table):
        return None
    query = text(f"SELECT version_num FROM {migrations.version_table}")
    return connection.execute(query).scalar()


def _upgrade(connection: Connection, found: str | None, where: str, migrations: Migrations) -> None:
    from alembic import command  # only here: most opens find the schema as it should be
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    attributes = {"connection": connection, "version_table": migrations.version_table}
    config = Config(attributes=attributes)
    config.set_main_option("script_location", str(migrations.folder).replace("%", "%%"))
    known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    if found is not None and found not in known:
        raise StoreError(
            f"catalogue {where}: expected revision {migrations.revision} or an earlier one, found "
            f"{found}: {migrations.when_later}"
        )
    command.upgrade(config, migrations.revision)

"""The catalogue's database: its table, how it is opened and migrated, and what its errors mean."""

from __future__ import annotations

import sqlite3
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Connection,
    Double,
    Engine,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
    create_engine,
    event,
    inspect,
    text,
)
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, SQLAlchemyError

from kvstrata.core.errors import ConfigError, StoreError

__all__ = ["OBJECTS", "REVISION", "VERSION_TABLE", "explained", "open_engine", "writing"]

REVISION: Final = "0001"
"""The migration that this version of kvstrata brings a catalogue to."""

VERSION_TABLE: Final = "kvstrata_revision"

OBJECTS: Final = Table(
    "kvstrata_objects",
    MetaData(),
    Column("namespace", String(32), nullable=False),
    Column("name", String(255), primary_key=True),
    Column("is_checkpoint", Boolean, nullable=False),
    Column("key", LargeBinary, nullable=False),
    Column("parent", LargeBinary, nullable=False),
    Column("position", BigInteger, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("tier", String(64), primary_key=True),
    Column("owner", String(255), nullable=False),
    Column("created_s", Double, nullable=False),
    Column("used_s", Double, nullable=False),
    Index("kvstrata_objects_used", "tier", "used_s"),
)
"""One row per object and tier, its columns in the order of `Entry`."""

_BUSY_S: Final = 5
_LOCK_KEY: Final = int.from_bytes(b"kvstrata", "big")  # of PostgreSQL's advisory lock
_WRITES: Final = "kvstrata_writes"
_ALEMBIC: Final = threading.Lock()  # Alembic keeps what it works on in modules of its own

_ADVICE: Final = {
    "locked": f"another process has written it for more than {_BUSY_S} s; try again",
    "not a database": "move it away, then kvstrata tiers rebuild makes it anew",
    "malformed": "move it away, then kvstrata tiers rebuild makes it anew",
    "is full": "make room on its disk",
    "readonly": "let this user write the file and its folder",
    "unable to open": "its folder must exist, and this user must be able to write there",
    "permission denied": "grant this user what the catalogue needs: CREATE on the schema",
    "authentication failed": "correct the user or the password in the URL",
    "does not exist": "create it, or correct the URL",
    "connection": "start the server, or correct the URL",
    "timeout": "look for what holds it: a long transaction or a lock",
}


def open_engine(url: str) -> tuple[Engine, str]:
    """Connect to a catalogue's database and bring its schema up to date.

    Args:
        url: ``sqlite:///PATH`` or ``postgresql+psycopg://USER@HOST/DATABASE``.

    Returns:
        The engine, and the URL without its password.

    Raises:
        ConfigError: no such URL, or the driver is not installed.
        StoreError: the database cannot be used, or a later version has made it.
    """
    parsed = _parse(url)
    where = parsed.render_as_string(hide_password=True)
    engine = _sqlite(parsed) if parsed.get_backend_name() == "sqlite" else _postgresql(parsed)
    try:
        with explained(where):
            _migrate(engine, where)
    except BaseException:
        engine.dispose()
        raise
    return engine, where


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn a database's error into a `StoreError` that says what to do."""
    try:
        yield
    except (SQLAlchemyError, sqlite3.Error) as error:
        found = " ".join(str(getattr(error, "orig", None) or error).split())
        does = (what for sign, what in _ADVICE.items() if sign in found.lower())
        advice = next(does, "kvstrata tiers rebuild makes a catalogue anew from the objects")
        raise StoreError(f"catalogue {where}: {found}; {advice}") from error


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


def _sqlite(url: URL) -> Engine:
    engine = create_engine(url, connect_args={"timeout": _BUSY_S}, hide_parameters=True)

    @event.listens_for(engine, "connect")
    def prepare(connection: Any, _: object) -> None:
        connection.isolation_level = None  # SQLAlchemy's "begin" below is the only one
        _use_write_ahead_log(connection)
        # A power loss may take the last rows, never the file: what is lost can be rebuilt.
        connection.execute("PRAGMA synchronous=NORMAL")

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


def _migrate(engine: Engine, where: str) -> None:
    with engine.connect() as connection:
        if _revision(connection) == REVISION:
            return
    with _ALEMBIC, writing(engine) as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": _LOCK_KEY})
        found = _revision(connection)
        if found != REVISION:
            _upgrade(connection, found, where)


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    return connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()


def _upgrade(connection: Connection, found: str | None, where: str) -> None:
    from alembic import command  # only here: most opens find the schema as it should be
    from alembic.config import Config
    from alembic.script import ScriptDirectory

    config = Config(attributes={"connection": connection, "version_table": VERSION_TABLE})
    folder = str(Path(__file__).with_name("migrations"))
    config.set_main_option("script_location", folder.replace("%", "%%"))
    known = [script.revision for script in ScriptDirectory.from_config(config).walk_revisions()]
    if found is not None and found not in known:
        raise StoreError(
            f"catalogue {where}: expected revision {REVISION} or an earlier one, found {found}: "
            "update kvstrata, or name another catalogue and run kvstrata tiers rebuild"
        )
    command.upgrade(config, REVISION)

"""The catalogue's database: its table, and what its errors mean."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Double,
    Engine,
    Index,
    LargeBinary,
    MetaData,
    String,
    Table,
)

from kvstrata.eventstore import database
from kvstrata.eventstore.database import Migrations, writing

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

_MIGRATIONS: Final = Migrations(
    folder=Path(__file__).with_name("migrations"),
    revision=REVISION,
    version_table=VERSION_TABLE,
    when_damaged="move it away, then kvstrata tiers rebuild makes it anew",
    when_later="update kvstrata, or name another catalogue and run kvstrata tiers rebuild",
    otherwise="kvstrata tiers rebuild makes a catalogue anew from the objects",
    synchronous="NORMAL",  # a lost row can be rebuilt
)


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
    return database.open_engine(url, _MIGRATIONS)


@contextmanager
def explained(where: str) -> Iterator[None]:
    """Turn a database's error into a `StoreError` that says what to do."""
    with database.explained(where, _MIGRATIONS):
        yield

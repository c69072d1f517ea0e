"""The tables of the catalogue of history, and which revision of them this version reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Double,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Table,
    Text,
    UniqueConstraint,
)

from kvstrata.eventstore.database import Migrations

__all__ = [
    "AUDIT",
    "COMMANDS",
    "INCIDENTS",
    "LAYOUTS",
    "METADATA",
    "MIGRATIONS",
    "NOTES",
    "REVISION",
    "SEGMENTS",
    "SNAPSHOTS",
    "VERSION_TABLE",
]

REVISION: Final = "0001"
"""The migration that this version of kvstrata brings a catalogue to."""

VERSION_TABLE: Final = "kvstrata_history_revision"
"""A name of its own: the catalogue of the tiers may stand in the same database."""

MIGRATIONS: Final = Migrations(
    folder=Path(__file__).with_name("migrations"),
    revision=REVISION,
    version_table=VERSION_TABLE,
    when_damaged="move it away and name it again: incidents and commands begin anew",
    when_later="update kvstrata, or name another catalogue",
    otherwise="look at the database's own log",
    synchronous="FULL",  # an acknowledged command or incident is nowhere else
)

METADATA: Final = MetaData()


# SQLite counts rows only in its own kind of integer.
_NUMBER: Final = BigInteger().with_variant(Integer, "sqlite")


def _number() -> Column[Any]:
    return Column("id", _NUMBER, primary_key=True, autoincrement=True)


COMMANDS: Final = Table(
    "kvstrata_commands",
    METADATA,
    _number(),
    Column("log_id", String(32), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("arguments", JSON, nullable=False),
    Column("who", String(128), nullable=False),
    Column("idempotency_key", String(128)),
    Column("state", String(16), nullable=False),
    Column("outcome", Text, nullable=False),
    Column("changed", BigInteger, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("taken_seqno", BigInteger, nullable=False),
    Column("ended_seqno", BigInteger, nullable=False),
    Column("created_s", Double, nullable=False),
    Column("taken_s", Double),
    Column("ended_s", Double),
    UniqueConstraint("log_id", "who", "idempotency_key", name="kvstrata_commands_once"),
    Index("kvstrata_commands_state", "log_id", "state", "id"),
)
"""One row per command, its columns in the order of `Command`."""

INCIDENTS: Final = Table(
    "kvstrata_incidents",
    METADATA,
    _number(),
    Column("log_id", String(32), nullable=False),
    Column("kind", String(32), nullable=False),
    Column("subject", String(128), nullable=False),
    Column("what", Text, nullable=False),
    Column("state", String(16), nullable=False),
    Column("opened_by", String(128), nullable=False),
    Column("first_seqno", BigInteger, nullable=False),
    Column("last_seqno", BigInteger, nullable=False),
    Column("occurrences", BigInteger, nullable=False),
    Column("opened_s", Double, nullable=False),
    Column("acknowledged_by", String(128)),
    Column("acknowledged_s", Double),
    Column("resolved_by", String(128)),
    Column("resolved_s", Double),
    UniqueConstraint("log_id", "kind", "subject", "first_seqno", name="kvstrata_incidents_once"),
    Index("kvstrata_incidents_state", "log_id", "state", "id"),
)
"""One row per incident, its columns in the order of `Incident`."""

NOTES: Final = Table(
    "kvstrata_incident_notes",
    METADATA,
    _number(),
    Column("incident", _NUMBER, ForeignKey("kvstrata_incidents.id"), nullable=False, index=True),
    Column("who", String(128), nullable=False),
    Column("at_s", Double, nullable=False),
    Column("text", Text, nullable=False),
)
"""What people wrote about an incident."""

AUDIT: Final = Table(
    "kvstrata_audit",
    METADATA,
    _number(),
    Column("log_id", String(32), nullable=False),
    Column("at_s", Double, nullable=False),
    Column("who", String(128), nullable=False),
    Column("role", String(16), nullable=False),
    Column("action", String(64), nullable=False),
    Column("subject", String(128), nullable=False),
    Column("outcome", Text, nullable=False),
    Column("detail", JSON, nullable=False),
    Index("kvstrata_audit_log", "log_id", "id"),
)
"""Who did what, and what came of it; rows are added and never changed."""

LAYOUTS: Final = Table(
    "kvstrata_layouts",
    METADATA,
    Column("digest", String(32), primary_key=True),
    Column("name", String(128), nullable=False),
    Column("layout", JSON, nullable=False),
    Column("seen_s", Double, nullable=False),
)
"""Every layout that a log was made for."""

SEGMENTS: Final = Table(
    "kvstrata_segments",
    METADATA,
    Column("log_id", String(32), primary_key=True),
    Column("segment_id", BigInteger, primary_key=True, autoincrement=False),
    Column("first_seqno", BigInteger, nullable=False),
    Column("last_seqno", BigInteger, nullable=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("incarnation", BigInteger, nullable=False),
    Column("is_sealed", Boolean, nullable=False),
    Column("began_s", Double, nullable=False),
    Column("seen_s", Double, nullable=False),
)
"""Every segment seen in a log's directory, deleted ones too."""

SNAPSHOTS: Final = Table(
    "kvstrata_snapshots",
    METADATA,
    Column("log_id", String(32), primary_key=True),
    Column("seqno", BigInteger, primary_key=True, autoincrement=False),
    Column("num_bytes", BigInteger, nullable=False),
    Column("taken_s", Double, nullable=False),
    Column("seen_s", Double, nullable=False),
)
"""Every snapshot seen in a log's directory, deleted ones too."""

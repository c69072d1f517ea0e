"""Commands, incidents with their notes, audit, and what lay in logs' directories."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


_NUMBER = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _number() -> sa.Column[int]:
    return sa.Column("id", _NUMBER, primary_key=True, autoincrement=True)


def upgrade() -> None:
    """Make the tables."""
    op.create_table(
        "kvstrata_commands",
        _number(),
        sa.Column("log_id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("arguments", sa.JSON, nullable=False),
        sa.Column("who", sa.String(128), nullable=False),
        sa.Column("idempotency_key", sa.String(128)),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("changed", sa.BigInteger, nullable=False),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("taken_seqno", sa.BigInteger, nullable=False),
        sa.Column("ended_seqno", sa.BigInteger, nullable=False),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("taken_s", sa.Double),
        sa.Column("ended_s", sa.Double),
        sa.UniqueConstraint("log_id", "who", "idempotency_key", name="kvstrata_commands_once"),
    )
    op.create_index("kvstrata_commands_state", "kvstrata_commands", ["log_id", "state", "id"])
    op.create_table(
        "kvstrata_incidents",
        _number(),
        sa.Column("log_id", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("what", sa.Text, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("opened_by", sa.String(128), nullable=False),
        sa.Column("first_seqno", sa.BigInteger, nullable=False),
        sa.Column("last_seqno", sa.BigInteger, nullable=False),
        sa.Column("occurrences", sa.BigInteger, nullable=False),
        sa.Column("opened_s", sa.Double, nullable=False),
        sa.Column("acknowledged_by", sa.String(128)),
        sa.Column("acknowledged_s", sa.Double),
        sa.Column("resolved_by", sa.String(128)),
        sa.Column("resolved_s", sa.Double),
        sa.UniqueConstraint(
            "log_id", "kind", "subject", "first_seqno", name="kvstrata_incidents_once"
        ),
    )
    op.create_index("kvstrata_incidents_state", "kvstrata_incidents", ["log_id", "state", "id"])
    _notes_and_audit()
    _directories()


def _notes_and_audit() -> None:
    op.create_table(
        "kvstrata_incident_notes",
        _number(),
        sa.Column("incident", _NUMBER, sa.ForeignKey("kvstrata_incidents.id"), nullable=False),
        sa.Column("who", sa.String(128), nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("ix_kvstrata_incident_notes_incident", "kvstrata_incident_notes", ["incident"])
    op.create_table(
        "kvstrata_audit",
        _number(),
        sa.Column("log_id", sa.String(32), nullable=False),
        sa.Column("at_s", sa.Double, nullable=False),
        sa.Column("who", sa.String(128), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("action", sa.String(64), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("outcome", sa.Text, nullable=False),
        sa.Column("detail", sa.JSON, nullable=False),
    )
    op.create_index("kvstrata_audit_log", "kvstrata_audit", ["log_id", "id"])


def _directories() -> None:
    op.create_table(
        "kvstrata_layouts",
        sa.Column("digest", sa.String(32), primary_key=True),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("layout", sa.JSON, nullable=False),
        sa.Column("seen_s", sa.Double, nullable=False),
    )
    op.create_table(
        "kvstrata_segments",
        sa.Column("log_id", sa.String(32), primary_key=True),
        sa.Column("segment_id", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("first_seqno", sa.BigInteger, nullable=False),
        sa.Column("last_seqno", sa.BigInteger, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("incarnation", sa.BigInteger, nullable=False),
        sa.Column("is_sealed", sa.Boolean, nullable=False),
        sa.Column("began_s", sa.Double, nullable=False),
        sa.Column("seen_s", sa.Double, nullable=False),
    )
    op.create_table(
        "kvstrata_snapshots",
        sa.Column("log_id", sa.String(32), primary_key=True),
        sa.Column("seqno", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("taken_s", sa.Double, nullable=False),
        sa.Column("seen_s", sa.Double, nullable=False),
    )


def downgrade() -> None:
    """Drop them: incidents, commands and audit are lost."""
    for name in (
        "kvstrata_snapshots",
        "kvstrata_segments",
        "kvstrata_layouts",
        "kvstrata_audit",
        "kvstrata_incident_notes",
        "kvstrata_incidents",
        "kvstrata_commands",
    ):
        op.drop_table(name)

"""The table of objects, one row per object and tier."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Make the table and the index by which the least recently used are found."""
    op.create_table(
        "kvstrata_objects",
        sa.Column("namespace", sa.String(32), nullable=False),
        sa.Column("name", sa.String(255), primary_key=True),
        sa.Column("is_checkpoint", sa.Boolean, nullable=False),
        sa.Column("key", sa.LargeBinary, nullable=False),
        sa.Column("parent", sa.LargeBinary, nullable=False),
        sa.Column("position", sa.BigInteger, nullable=False),
        sa.Column("num_bytes", sa.BigInteger, nullable=False),
        sa.Column("tier", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("created_s", sa.Double, nullable=False),
        sa.Column("used_s", sa.Double, nullable=False),
    )
    op.create_index("kvstrata_objects_used", "kvstrata_objects", ["tier", "used_s"])


def downgrade() -> None:
    """Drop it; a catalogue can be rebuilt from the objects."""
    op.drop_table("kvstrata_objects")

"""Make the table of keys that were revoked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "ended_keys",
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("key_id", sa.String(128), primary_key=True),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("ended_keys")

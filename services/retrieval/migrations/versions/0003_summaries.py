"""Summaries of documents: which revision has one, and who is at it."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "summaries",
        sa.Column("document_id", sa.String(32), sa.ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("revision", sa.String(32), nullable=False),
        sa.Column("space", sa.String(128), nullable=False),
        sa.Column("trying", sa.String(32), nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("due", sa.BigInteger, nullable=True),
    )


def downgrade() -> None:
    op.drop_table("summaries")

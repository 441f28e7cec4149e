"""Make the table of users' memories."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "memories",
        sa.Column("memory_id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("user_id", sa.String(256), nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("digest", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("conversation_id", sa.String(128), nullable=False),
    )
    op.create_index("memories_user", "memories", ["tenant", "user_id", "created_at"])
    op.create_index("memories_text", "memories", ["tenant", "user_id", "digest"], unique=True)


def downgrade() -> None:
    op.drop_table("memories")

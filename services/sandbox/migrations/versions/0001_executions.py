"""Executions with their events, and the owners of sessions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "executions",
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("execution_id", sa.String(200), primary_key=True),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("node", sa.String(64), nullable=False),
        sa.Column("boot", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger, nullable=True),
    )
    op.create_index("ix_executions_state", "executions", ["node", "state"])
    op.create_index("ix_executions_finished", "executions", ["finished_at"])
    op.create_table(
        "execution_events",
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("execution_id", sa.String(200), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("facts", sa.Text, nullable=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "sessions",
        sa.Column("session_id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("user", sa.String(255), nullable=False),
        sa.Column("node", sa.String(64), nullable=False),
        sa.Column("wall", sa.Float, nullable=False),
        sa.Column("cpu", sa.Float, nullable=False),
        sa.Column("memory_bytes", sa.BigInteger, nullable=False),
        sa.Column("pids", sa.Integer, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("used_at", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_sessions_owner", "sessions", ["tenant", "user", "node", "used_at"])


def downgrade() -> None:
    op.drop_table("sessions")
    op.drop_table("execution_events")
    op.drop_table("executions")

"""Make the tables of runs, conversations, artifacts and quotas."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "runs",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("user_id", sa.String(256), nullable=False),
        sa.Column("request_id", sa.String(128)),
        sa.Column("request_digest", sa.String(64), nullable=False),
        sa.Column("conversation_id", sa.String(64), nullable=False),
        sa.Column("state", sa.SmallInteger, nullable=False),
        sa.Column("agent_id", sa.String(128), nullable=False),
        sa.Column("agent_name", sa.String(128), nullable=False),
        sa.Column("agent_version", sa.Integer, nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("question", sa.Text, nullable=False),
        sa.Column("labels", sa.JSON, nullable=False),
        sa.Column("trace_id", sa.String(32), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("finished_at", sa.BigInteger),
        sa.Column("owner", sa.String(128), nullable=False),
        sa.Column("epoch", sa.BigInteger, nullable=False),
        sa.Column("attempt", sa.Integer, nullable=False),
        sa.Column("lease_until", sa.BigInteger, nullable=False),
        sa.Column("last_sequence", sa.BigInteger, nullable=False),
        sa.Column("reserved_until", sa.BigInteger, nullable=False),
        sa.Column("oldest_sequence", sa.BigInteger, nullable=False),
        sa.Column("min_reader", sa.Integer, nullable=False),
        sa.Column("pending", sa.JSON, nullable=False),
        sa.Column("usage", sa.JSON, nullable=False),
        sa.Column("failure", sa.String(64), nullable=False),
        sa.Column("cancel_requested_by", sa.String(256), nullable=False),
        sa.Column("pruned", sa.Boolean, nullable=False),
    )
    op.create_index("runs_request", "runs", ["tenant", "user_id", "request_id"], unique=True)
    op.create_index("runs_newest", "runs", ["tenant", "user_id", "created_at", "run_id"])
    op.create_index("runs_conversation", "runs", ["conversation_id", "state"])
    op.create_index("runs_state", "runs", ["state", "lease_until"])
    op.create_index("runs_finished", "runs", ["finished_at"])
    op.create_table(
        "checkpoints",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("head", sa.LargeBinary, nullable=False),
        sa.Column("saved_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "segments",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("digest", sa.LargeBinary(32), primary_key=True),
        sa.Column("kind", sa.String(32), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "events",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True),
        sa.Column("kind", sa.SmallInteger, nullable=False),
        sa.Column("size", sa.Integer, nullable=False),
        sa.Column("payload", sa.LargeBinary, nullable=False),
        sqlite_with_rowid=False,
    )
    op.create_table(
        "conversations",
        sa.Column("conversation_id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("user_id", sa.String(256), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("title_search", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
        sa.Column("next_position", sa.Integer, nullable=False),
        sa.Column("tool_memory", sa.LargeBinary, nullable=False),
    )
    op.create_index("conversations_newest", "conversations", ["tenant", "user_id", "updated_at", "conversation_id"])
    op.create_table(
        "messages",
        sa.Column("conversation_id", sa.String(64), primary_key=True),
        sa.Column("position", sa.Integer, primary_key=True),
        sa.Column("message_id", sa.String(64), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("role", sa.SmallInteger, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("search", sa.Text, nullable=False),
        sa.Column("superseded_by", sa.String(64), nullable=False),
        sa.Column("rating", sa.SmallInteger, nullable=False),
        sa.Column("comment", sa.Text, nullable=False),
    )
    op.create_index("messages_id", "messages", ["conversation_id", "message_id"], unique=True)
    op.create_table(
        "artifacts",
        sa.Column("artifact_id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("user_id", sa.String(256), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("name", sa.String(255), nullable=False),
        sa.Column("media_type", sa.String(255), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("sha256", sa.String(64), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger),
    )
    op.create_index("artifacts_expiry", "artifacts", ["expires_at"])
    op.create_index("artifacts_run", "artifacts", ["run_id"])
    op.create_table(
        "consumption",
        sa.Column("run_id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("user_id", sa.String(256), nullable=False),
        sa.Column("key_id", sa.String(128), nullable=False),
        sa.Column("model", sa.String(256), nullable=False),
        sa.Column("started_at", sa.BigInteger, nullable=False),
        sa.Column("settled", sa.Boolean, nullable=False),
        sa.Column("reserved_tokens", sa.BigInteger, nullable=False),
        sa.Column("input_tokens", sa.BigInteger, nullable=False),
        sa.Column("output_tokens", sa.BigInteger, nullable=False),
        sa.Column("cost_micros", sa.BigInteger, nullable=False),
    )
    op.create_index("consumption_window", "consumption", ["tenant", "started_at"])
    op.create_table(
        "quotas",
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("scope", sa.String(16), primary_key=True),
        sa.Column("subject", sa.String(256), primary_key=True),
        sa.Column("runs", sa.BigInteger),
        sa.Column("tokens", sa.BigInteger),
        sa.Column("cost_micros", sa.BigInteger),
    )


def downgrade() -> None:
    for table in (
        "quotas",
        "consumption",
        "artifacts",
        "messages",
        "conversations",
        "events",
        "segments",
        "checkpoints",
        "runs",
    ):
        op.drop_table(table)

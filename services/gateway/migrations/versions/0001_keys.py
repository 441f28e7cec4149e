"""API keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "api_keys",
        sa.Column("key_id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("secret_hash", sa.String(255), nullable=False),
        sa.Column("scopes", sa.JSON, nullable=False),
        sa.Column("group_names", sa.JSON, nullable=False),
        sa.Column("agent", sa.String(128), nullable=False),
        sa.Column("created_by", sa.String(255), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=True),
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
        sa.Column("last_used_at", sa.BigInteger, nullable=True),
        sa.Column("replaces", sa.String(32), nullable=False),
    )
    op.create_index("api_keys_by_tenant", "api_keys", ["tenant", "created_at", "key_id"])


def downgrade() -> None:
    op.drop_table("api_keys")

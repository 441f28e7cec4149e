"""Make the tables of kept agents and prompts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "definitions",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("definition_id", sa.String(64), primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("owner", sa.String(256), nullable=False),
        sa.Column("shared", sa.Boolean, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )
    op.create_index("definitions_name", "definitions", ["tenant", "kind", "name"], unique=True)
    op.create_table(
        "definition_versions",
        sa.Column("kind", sa.String(16), primary_key=True),
        sa.Column("definition_id", sa.String(64), primary_key=True),
        sa.Column("version", sa.Integer, primary_key=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("content", sa.LargeBinary, nullable=False),
        sa.Column("updated_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    op.drop_table("definition_versions")
    op.drop_table("definitions")

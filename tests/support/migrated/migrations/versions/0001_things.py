"""A first table."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.create_table("things", sa.Column("id", sa.Integer, primary_key=True), sa.Column("name", sa.Text, nullable=False))

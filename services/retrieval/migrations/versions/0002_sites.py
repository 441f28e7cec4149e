"""Sites that sources follow, and their pages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sites",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("source_id", sa.String(32), sa.ForeignKey("sources.id", ondelete="CASCADE"), nullable=False),
        sa.Column("url", sa.String(1024), nullable=False),
        sa.Column("max_pages", sa.Integer, nullable=False),
        sa.Column("max_depth", sa.Integer, nullable=False),
        sa.Column("every", sa.BigInteger, nullable=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("sync", sa.Integer, nullable=False),
        sa.Column("host", sa.String(255), nullable=False),
        sa.Column("cut", sa.Boolean, nullable=False),
        sa.Column("read_bytes", sa.BigInteger, nullable=False),
        sa.Column("synced_at", sa.BigInteger, nullable=True),
        sa.Column("due", sa.BigInteger, nullable=True),
        sa.UniqueConstraint("source_id", "url", name="uq_sites_source_url"),
    )
    op.create_index("ix_sites_due", "sites", ["due"])
    op.create_table(
        "site_pages",
        sa.Column("site_id", sa.String(32), sa.ForeignKey("sites.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("url", sa.String(1024), primary_key=True),
        sa.Column("sync", sa.Integer, nullable=False),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("depth", sa.Integer, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("path", sa.String(1024), nullable=False),
        sa.Column("passages", sa.BigInteger, nullable=False),
        sa.Column("etag", sa.Text, nullable=False),
        sa.Column("last_modified", sa.String(64), nullable=False),
        sa.Column("links", sa.Text, nullable=False),
        sa.Column("number", sa.BigInteger, nullable=False),
    )
    op.create_index("ix_site_pages_turn", "site_pages", ["site_id", "sync", "outcome", "position"])
    op.create_index("ix_site_pages_number", "site_pages", ["site_id", "number"])
    op.create_index("ix_site_pages_path", "site_pages", ["path"])


def downgrade() -> None:
    op.drop_table("site_pages")
    op.drop_table("sites")

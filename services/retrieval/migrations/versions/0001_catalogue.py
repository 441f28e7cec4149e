"""The catalogue: sources, documents, passages, vocabulary, purges."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "sources",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("name", sa.String(128), nullable=False),
        sa.Column("owner", sa.String(255), nullable=False),
        sa.Column("description", sa.Text, nullable=False),
        sa.Column("shared", sa.Boolean, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("topics", sa.Text, nullable=False),
        sa.Column("retriever", sa.String(64), nullable=False),
        sa.UniqueConstraint("tenant", "name", name="uq_sources_tenant_name"),
    )
    op.create_table(
        "documents",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("source_id", sa.String(32), sa.ForeignKey("sources.id", ondelete="CASCADE"), nullable=False),
        sa.Column("path", sa.String(1024), nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("media_type", sa.String(255), nullable=False),
        sa.Column("size", sa.BigInteger, nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("reason", sa.String(64), nullable=False),
        sa.Column("message", sa.Text, nullable=False),
        sa.Column("passages", sa.BigInteger, nullable=False),
        sa.Column("ingested_at", sa.BigInteger, nullable=False),
        sa.Column("content_hash", sa.String(64), nullable=False),
        sa.Column("url", sa.Text, nullable=False),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("revision", sa.String(32), nullable=False),
        sa.Column("staged", sa.String(128), nullable=False),
        sa.Column("space", sa.String(128), nullable=False),
        sa.Column("embedded", sa.BigInteger, nullable=False),
        sa.Column("embed_attempts", sa.Integer, nullable=False),
        sa.Column("embed_after", sa.BigInteger, nullable=True),
        sa.UniqueConstraint("source_id", "path", name="uq_documents_source_path"),
    )
    op.create_index("ix_documents_staged", "documents", ["staged"])
    op.create_index("ix_documents_embed_after", "documents", ["embed_after"])
    op.create_table(
        "passages",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("source_id", sa.String(32), nullable=False),
        sa.Column("document_id", sa.String(32), sa.ForeignKey("documents.id", ondelete="CASCADE"), nullable=False),
        sa.Column("revision", sa.String(32), nullable=False),
        sa.Column("ordinal", sa.Integer, nullable=False),
        sa.Column("start", sa.BigInteger, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("spans", sa.Text, nullable=False),
    )
    op.create_index("ix_passages_document", "passages", ["document_id", "revision", "ordinal"])
    op.create_table(
        "vocabulary",
        sa.Column("source_id", sa.String(32), sa.ForeignKey("sources.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("term", sa.String(64), primary_key=True),
        sa.Column("passages", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "purges",
        sa.Column("id", sa.String(32), primary_key=True),
        sa.Column("tenant", sa.String(255), nullable=False),
        sa.Column("source_id", sa.String(32), nullable=False),
        sa.Column("document_id", sa.String(32), nullable=False),
        sa.Column("revision", sa.String(32), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )


def downgrade() -> None:
    for table in ("purges", "vocabulary", "passages", "documents", "sources"):
        op.drop_table(table)

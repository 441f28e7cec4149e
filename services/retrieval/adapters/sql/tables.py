"""Tables of the catalogue. Times are microseconds since 1970, UTC. Every row has its tenant."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import sqlalchemy as sa

metadata = sa.MetaData()
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)

sources = sa.Table(
    "sources",
    metadata,
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

documents = sa.Table(
    "documents",
    metadata,
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
    # The revision that is searched, empty before the first; the upload that is under way, empty when none is.
    sa.Column("revision", sa.String(32), nullable=False),
    sa.Column("staged", sa.String(128), nullable=False),
    # Progress of the vectors: passages done of `passages`, in which space, and who may take the job when.
    sa.Column("space", sa.String(128), nullable=False),
    sa.Column("embedded", sa.BigInteger, nullable=False),
    sa.Column("embed_attempts", sa.Integer, nullable=False),
    sa.Column("embed_after", sa.BigInteger, nullable=True),
    sa.UniqueConstraint("source_id", "path", name="uq_documents_source_path"),
    sa.Index("ix_documents_staged", "staged"),
    sa.Index("ix_documents_embed_after", "embed_after"),
)

passages = sa.Table(
    "passages",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("tenant", sa.String(255), nullable=False),
    sa.Column("source_id", sa.String(32), nullable=False),
    sa.Column("document_id", sa.String(32), sa.ForeignKey("documents.id", ondelete="CASCADE"), nullable=False),
    sa.Column("revision", sa.String(32), nullable=False),
    sa.Column("ordinal", sa.Integer, nullable=False),
    sa.Column("start", sa.BigInteger, nullable=False),
    sa.Column("text", sa.Text, nullable=False),
    # JSON array of [start, end, heading, page].
    sa.Column("spans", sa.Text, nullable=False),
    sa.Index("ix_passages_document", "document_id", "revision", "ordinal"),
)

# How many searched passages of a source hold a term: kept in step by the transactions that publish and remove.
vocabulary = sa.Table(
    "vocabulary",
    metadata,
    sa.Column("source_id", sa.String(32), sa.ForeignKey("sources.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("term", sa.String(64), primary_key=True),
    sa.Column("passages", sa.BigInteger, nullable=False),
)

purges = sa.Table(
    "purges",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("tenant", sa.String(255), nullable=False),
    sa.Column("source_id", sa.String(32), nullable=False),
    sa.Column("document_id", sa.String(32), nullable=False),
    sa.Column("revision", sa.String(32), nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

sites = sa.Table(
    "sites",
    metadata,
    sa.Column("id", sa.String(32), primary_key=True),
    sa.Column("tenant", sa.String(255), nullable=False),
    sa.Column("source_id", sa.String(32), sa.ForeignKey("sources.id", ondelete="CASCADE"), nullable=False),
    sa.Column("url", sa.String(1024), nullable=False),
    sa.Column("max_pages", sa.Integer, nullable=False),
    sa.Column("max_depth", sa.Integer, nullable=False),
    # Seconds, NULL when it is read on demand alone.
    sa.Column("every", sa.BigInteger, nullable=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("message", sa.Text, nullable=False),
    sa.Column("sync", sa.Integer, nullable=False),
    sa.Column("host", sa.String(255), nullable=False),
    sa.Column("cut", sa.Boolean, nullable=False),
    sa.Column("read_bytes", sa.BigInteger, nullable=False),
    sa.Column("synced_at", sa.BigInteger, nullable=True),
    # When somebody may take it up: now, after a lease, or at its next sync; NULL is never.
    sa.Column("due", sa.BigInteger, nullable=True),
    sa.UniqueConstraint("source_id", "url", name="uq_sites_source_url"),
    sa.Index("ix_sites_due", "due"),
)

# Pages of sites. `sync` is the sync that last named the page, `position` its turn in that sync, `number` the order in
# which pages of the site were dealt with.
site_pages = sa.Table(
    "site_pages",
    metadata,
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
    # JSON array of addresses.
    sa.Column("links", sa.Text, nullable=False),
    sa.Column("number", sa.BigInteger, nullable=False),
    sa.Index("ix_site_pages_turn", "site_id", "sync", "outcome", "position"),
    sa.Index("ix_site_pages_number", "site_id", "number"),
    sa.Index("ix_site_pages_path", "path"),
)

# Which revision of a document has its summary, with a vector in which space; which is being tried, by whom until when.
summaries = sa.Table(
    "summaries",
    metadata,
    sa.Column("document_id", sa.String(32), sa.ForeignKey("documents.id", ondelete="CASCADE"), primary_key=True),
    sa.Column("revision", sa.String(32), nullable=False),
    sa.Column("space", sa.String(128), nullable=False),
    sa.Column("trying", sa.String(32), nullable=False),
    sa.Column("attempts", sa.Integer, nullable=False),
    sa.Column("due", sa.BigInteger, nullable=True),
)


def micros(at: datetime) -> int:
    """Return a time as the tables hold it."""
    return (at - _EPOCH) // timedelta(microseconds=1)


def moment(at: int) -> datetime:
    """Return the time that the tables hold as `at`."""
    return _EPOCH + timedelta(microseconds=at)

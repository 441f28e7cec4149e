"""Tables of the orchestrator's database. Migrations make them; this module is what queries are written against."""

from __future__ import annotations

from sqlalchemy import (
    JSON,
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    String,
    Table,
    Text,
)

from services.orchestrator.adapters.sql.dialect import Instant

metadata = MetaData()

# `lease_until` is in milliseconds of the database's own clock; every other time is the service's.
runs = Table(
    "runs",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("user_id", String(256), nullable=False),
    # Null when the caller gave none: nulls are distinct in the unique index.
    Column("request_id", String(128)),
    Column("request_digest", String(64), nullable=False),
    Column("conversation_id", String(64), nullable=False),
    Column("state", SmallInteger, nullable=False),
    Column("agent_id", String(128), nullable=False),
    Column("agent_name", String(128), nullable=False),
    Column("agent_version", Integer, nullable=False),
    Column("model", String(256), nullable=False),
    Column("question", Text, nullable=False),
    Column("labels", JSON, nullable=False),
    Column("trace_id", String(32), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("finished_at", Instant),
    Column("owner", String(128), nullable=False),
    Column("epoch", BigInteger, nullable=False),
    Column("attempt", Integer, nullable=False),
    Column("lease_until", BigInteger, nullable=False),
    Column("last_sequence", BigInteger, nullable=False),
    Column("reserved_until", BigInteger, nullable=False),
    Column("oldest_sequence", BigInteger, nullable=False),
    Column("min_reader", Integer, nullable=False),
    Column("pending", JSON, nullable=False),
    Column("usage", JSON, nullable=False),
    Column("failure", String(64), nullable=False),
    Column("cancel_requested_by", String(256), nullable=False),
    Column("pruned", Boolean, nullable=False),
    Index("runs_request", "tenant", "user_id", "request_id", unique=True),
    Index("runs_newest", "tenant", "user_id", "created_at", "run_id"),
    Index("runs_conversation", "conversation_id", "state"),
    Index("runs_state", "state", "lease_until"),
    Index("runs_finished", "finished_at"),
)

checkpoints = Table(
    "checkpoints",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("head", LargeBinary, nullable=False),
    Column("saved_at", Instant, nullable=False),
)

segments = Table(
    "segments",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("digest", LargeBinary(32), primary_key=True),
    Column("kind", String(32), nullable=False),
    Column("content", LargeBinary, nullable=False),
)

# Clustered by its key on SQLite: a run's events are read in order and written at the end.
events = Table(
    "events",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("kind", SmallInteger, nullable=False),
    Column("size", Integer, nullable=False),
    Column("payload", LargeBinary, nullable=False),
    sqlite_with_rowid=False,
)

conversations = Table(
    "conversations",
    metadata,
    Column("conversation_id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("user_id", String(256), nullable=False),
    Column("title", Text, nullable=False),
    Column("title_search", Text, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Column("next_position", Integer, nullable=False),
    Column("tool_memory", LargeBinary, nullable=False),
    Index("conversations_newest", "tenant", "user_id", "updated_at", "conversation_id"),
)

messages = Table(
    "messages",
    metadata,
    Column("conversation_id", String(64), primary_key=True),
    Column("position", Integer, primary_key=True),
    Column("message_id", String(64), nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("role", SmallInteger, nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("search", Text, nullable=False),
    Column("superseded_by", String(64), nullable=False),
    Column("rating", SmallInteger, nullable=False),
    Column("comment", Text, nullable=False),
    Index("messages_id", "conversation_id", "message_id", unique=True),
)

artifacts = Table(
    "artifacts",
    metadata,
    Column("artifact_id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("user_id", String(256), nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("name", String(255), nullable=False),
    Column("media_type", String(255), nullable=False),
    Column("size", BigInteger, nullable=False),
    Column("sha256", String(64), nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("expires_at", Instant),
    Index("artifacts_expiry", "expires_at"),
    Index("artifacts_run", "run_id"),
)

# One row per run: what it reserved when it was admitted, then what it used.
consumption = Table(
    "consumption",
    metadata,
    Column("run_id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("user_id", String(256), nullable=False),
    Column("key_id", String(128), nullable=False),
    Column("model", String(256), nullable=False),
    Column("started_at", Instant, nullable=False),
    Column("settled", Boolean, nullable=False),
    Column("reserved_tokens", BigInteger, nullable=False),
    Column("input_tokens", BigInteger, nullable=False),
    Column("output_tokens", BigInteger, nullable=False),
    Column("cost_micros", BigInteger, nullable=False),
    Index("consumption_window", "tenant", "started_at"),
)

quotas = Table(
    "quotas",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("scope", String(16), primary_key=True),
    Column("subject", String(256), primary_key=True),
    Column("runs", BigInteger),
    Column("tokens", BigInteger),
    Column("cost_micros", BigInteger),
)

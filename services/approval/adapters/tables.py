"""The tables. Times are microseconds since 1970, UTC, so that they sort as numbers on every database."""

from __future__ import annotations

from sqlalchemy import BigInteger, Column, Index, Integer, LargeBinary, MetaData, String, Table, Text, text

metadata = MetaData()

approvals = Table(
    "approvals",
    metadata,
    # The id comes first: a service looks records up by id over all tenants.
    Column("approval_id", String(128), primary_key=True),
    Column("tenant", String(128), primary_key=True),
    Column("kind", String(16), nullable=False),
    Column("state", String(16), nullable=False),
    Column("run_id", String(64), nullable=False),
    Column("round", Integer, nullable=False),
    Column("call_id", String(128), nullable=False),
    Column("conversation_id", String(64), nullable=False),
    Column("tool", String(128), nullable=False),
    Column("arguments", LargeBinary, nullable=False),
    Column("arguments_digest", String(64), nullable=False),
    Column("parameters", LargeBinary, nullable=False),
    Column("reason", Text, nullable=False),
    Column("gate", String(16), nullable=False),
    Column("policy", Text, nullable=False),
    Column("quorum", Integer, nullable=False),
    Column("group_name", String(128), nullable=False),
    Column("four_eyes", Integer, nullable=False),
    Column("requested_by", String(255), nullable=False),
    Column("agent", String(128), nullable=False),
    Column("requested_at", BigInteger, nullable=False),
    Column("deadline", BigInteger, nullable=False),
    Column("decided_by", String(255), nullable=False),
    Column("decided_at", BigInteger, nullable=True),
    Column("comment", Text, nullable=False),
    Column("edited_arguments", LargeBinary, nullable=False),
    Column("questions", LargeBinary, nullable=False),
    Column("answer", LargeBinary, nullable=False),
    Column("skipped", Integer, nullable=False),
    Column("agreed", Text, nullable=False),
    Column("version", Integer, nullable=False),
    # One index for each way a list is asked for; a list without states reads one range for each state.
    Index("ix_approvals_state", "tenant", "state", "requested_at", "approval_id"),
    Index("ix_approvals_owner", "tenant", "requested_by", "state", "requested_at", "approval_id"),
    Index("ix_approvals_run", "tenant", "run_id", "state", "requested_at", "approval_id"),
    Index("ix_approvals_tool", "tenant", "tool", "state", "requested_at", "approval_id"),
    Index(
        "ix_approvals_group",
        "tenant",
        "group_name",
        "state",
        "requested_at",
        "approval_id",
        sqlite_where=text("group_name <> ''"),
        postgresql_where=text("group_name <> ''"),
    ),
    Index(
        "ix_approvals_due",
        "deadline",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
    Index(
        "ix_approvals_due_tenant",
        "tenant",
        "deadline",
        sqlite_where=text("state = 'pending'"),
        postgresql_where=text("state = 'pending'"),
    ),
)

allow_rules = Table(
    "allow_rules",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("rule_id", String(64), primary_key=True),
    Column("user_name", String(255), nullable=False),
    Column("tool", String(128), nullable=False),
    Column("conversation_id", String(64), nullable=False),
    Column("arguments_digest", String(64), nullable=False),
    Column("condition", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=True),
    Index("ix_allow_rules_user", "tenant", "user_name", "created_at", "rule_id"),
    Index("ix_allow_rules_tool", "tenant", "user_name", "tool"),
)

changes = Table(
    "changes",
    metadata,
    Column("sequence", BigInteger().with_variant(Integer, "sqlite"), primary_key=True, autoincrement=True),
    Column("tenant", String(128), nullable=False),
    Column("action", String(16), nullable=False),
    Column("actor", String(300), nullable=False),
    Column("subject", String(128), nullable=False),
    Column("at", BigInteger, nullable=False),
    Column("detail", LargeBinary, nullable=False),
    # A pruned sequence is never given again.
    sqlite_autoincrement=True,
)

# How far each durable follower of `changes` has come.
cursors = Table(
    "cursors",
    metadata,
    Column("follower", String(32), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
)

audit_entries = Table(
    "audit_entries",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("sequence", BigInteger, primary_key=True),
    Column("at", BigInteger, nullable=False),
    Column("action", String(16), nullable=False),
    Column("actor", String(300), nullable=False),
    Column("subject", String(128), nullable=False),
    Column("detail", LargeBinary, nullable=False),
    Column("previous_hash", String(64), nullable=False),
    Column("hash", String(64), nullable=False),
    Index("ix_audit_entries_subject", "tenant", "subject", "sequence"),
)

audit_heads = Table(
    "audit_heads",
    metadata,
    Column("tenant", String(128), primary_key=True),
    Column("sequence", BigInteger, nullable=False),
    Column("hash", String(64), nullable=False),
)

deliveries = Table(
    "deliveries",
    metadata,
    Column("delivery_id", String(64), primary_key=True),
    Column("endpoint", Text, nullable=False),
    Column("tenant", String(128), nullable=False),
    Column("approval_id", String(128), nullable=False),
    Column("event", String(32), nullable=False),
    Column("body", LargeBinary, nullable=False),
    Column("attempts", Integer, nullable=False),
    Column("next_at", BigInteger, nullable=False),
    Column("error", Text, nullable=False),
    Index("ix_deliveries_due", "next_at"),
)

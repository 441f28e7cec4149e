"""Records, allow rules, changes, the audit log and webhook deliveries."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None

APPEND_ONLY = "the audit log is append-only"


def upgrade() -> None:
    _records()
    _rules()
    _changes()
    _audit()
    _deliveries()


def _records() -> None:
    op.create_table(
        "approvals",
        sa.Column("approval_id", sa.String(128), primary_key=True),
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("run_id", sa.String(64), nullable=False),
        sa.Column("round", sa.Integer, nullable=False),
        sa.Column("call_id", sa.String(128), nullable=False),
        sa.Column("conversation_id", sa.String(64), nullable=False),
        sa.Column("tool", sa.String(128), nullable=False),
        sa.Column("arguments", sa.LargeBinary, nullable=False),
        sa.Column("arguments_digest", sa.String(64), nullable=False),
        sa.Column("parameters", sa.LargeBinary, nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("gate", sa.String(16), nullable=False),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("quorum", sa.Integer, nullable=False),
        sa.Column("group_name", sa.String(128), nullable=False),
        sa.Column("four_eyes", sa.Integer, nullable=False),
        sa.Column("requested_by", sa.String(255), nullable=False),
        sa.Column("agent", sa.String(128), nullable=False),
        sa.Column("requested_at", sa.BigInteger, nullable=False),
        sa.Column("deadline", sa.BigInteger, nullable=False),
        sa.Column("decided_by", sa.String(255), nullable=False),
        sa.Column("decided_at", sa.BigInteger, nullable=True),
        sa.Column("comment", sa.Text, nullable=False),
        sa.Column("edited_arguments", sa.LargeBinary, nullable=False),
        sa.Column("questions", sa.LargeBinary, nullable=False),
        sa.Column("answer", sa.LargeBinary, nullable=False),
        sa.Column("skipped", sa.Integer, nullable=False),
        sa.Column("agreed", sa.Text, nullable=False),
        sa.Column("version", sa.Integer, nullable=False),
    )
    newest = ["state", "requested_at", "approval_id"]
    op.create_index("ix_approvals_state", "approvals", ["tenant", *newest])
    op.create_index("ix_approvals_owner", "approvals", ["tenant", "requested_by", *newest])
    op.create_index("ix_approvals_run", "approvals", ["tenant", "run_id", *newest])
    op.create_index("ix_approvals_tool", "approvals", ["tenant", "tool", *newest])
    _partial("ix_approvals_group", ["tenant", "group_name", *newest], "group_name <> ''")
    _partial("ix_approvals_due", ["deadline"], "state = 'pending'")
    _partial("ix_approvals_due_tenant", ["tenant", "deadline"], "state = 'pending'")


def _partial(name: str, columns: list[str], condition: str) -> None:
    where = sa.text(condition)
    op.create_index(name, "approvals", columns, sqlite_where=where, postgresql_where=where)


def _rules() -> None:
    op.create_table(
        "allow_rules",
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("rule_id", sa.String(64), primary_key=True),
        sa.Column("user_name", sa.String(255), nullable=False),
        sa.Column("tool", sa.String(128), nullable=False),
        sa.Column("conversation_id", sa.String(64), nullable=False),
        sa.Column("arguments_digest", sa.String(64), nullable=False),
        sa.Column("condition", sa.Text, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=True),
    )
    op.create_index("ix_allow_rules_user", "allow_rules", ["tenant", "user_name", "created_at", "rule_id"])
    op.create_index("ix_allow_rules_tool", "allow_rules", ["tenant", "user_name", "tool"])


def _changes() -> None:
    op.create_table(
        "changes",
        sa.Column("sequence", sa.BigInteger().with_variant(sa.Integer, "sqlite"), primary_key=True, autoincrement=True),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("actor", sa.String(300), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("detail", sa.LargeBinary, nullable=False),
        sqlite_autoincrement=True,
    )
    op.create_table(
        "cursors",
        sa.Column("follower", sa.String(32), primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
    )


def _audit() -> None:
    op.create_table(
        "audit_entries",
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("action", sa.String(16), nullable=False),
        sa.Column("actor", sa.String(300), nullable=False),
        sa.Column("subject", sa.String(128), nullable=False),
        sa.Column("detail", sa.LargeBinary, nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    op.create_index("ix_audit_entries_subject", "audit_entries", ["tenant", "subject", "sequence"])
    op.create_table(
        "audit_heads",
        sa.Column("tenant", sa.String(128), primary_key=True),
        sa.Column("sequence", sa.BigInteger, nullable=False),
        sa.Column("hash", sa.String(64), nullable=False),
    )
    if op.get_bind().dialect.name == "postgresql":
        op.execute(
            "CREATE FUNCTION audit_entries_append_only() RETURNS trigger LANGUAGE plpgsql AS "
            f"$$ BEGIN RAISE EXCEPTION '{APPEND_ONLY}'; END $$"
        )
        op.execute(
            "CREATE TRIGGER audit_entries_append_only BEFORE UPDATE OR DELETE OR TRUNCATE ON audit_entries "
            "FOR EACH STATEMENT EXECUTE FUNCTION audit_entries_append_only()"
        )
        return
    for verb in ("UPDATE", "DELETE"):
        op.execute(
            f"CREATE TRIGGER audit_entries_no_{verb.lower()} BEFORE {verb} ON audit_entries "
            f"BEGIN SELECT RAISE(ABORT, '{APPEND_ONLY}'); END"
        )


def _deliveries() -> None:
    op.create_table(
        "deliveries",
        sa.Column("delivery_id", sa.String(64), primary_key=True),
        sa.Column("endpoint", sa.Text, nullable=False),
        sa.Column("tenant", sa.String(128), nullable=False),
        sa.Column("approval_id", sa.String(128), nullable=False),
        sa.Column("event", sa.String(32), nullable=False),
        sa.Column("body", sa.LargeBinary, nullable=False),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("next_at", sa.BigInteger, nullable=False),
        sa.Column("error", sa.Text, nullable=False),
    )
    op.create_index("ix_deliveries_due", "deliveries", ["next_at"])

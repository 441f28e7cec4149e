"""The approval service's use cases over a real database, for tests that need no server."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from services.approval.adapters.database import Database
from services.approval.adapters.notify_local import LocalBell
from services.approval.adapters.sql_audit import SqlAuditLog
from services.approval.adapters.sql_changes import SqlChangeLog
from services.approval.adapters.sql_outbox import SqlOutbox
from services.approval.adapters.sql_rules import SqlRules
from services.approval.adapters.sql_store import SqlApprovals
from services.approval.adapters.tables import metadata
from services.approval.audit import Audit
from services.approval.bootstrap import MIGRATIONS
from services.approval.decisions import Decisions
from services.approval.domain import Approval, Kind
from services.approval.policy import Operator
from services.approval.records import Records
from services.approval.requests import Asked, Requests
from services.approval.rules import AllowRules
from services.chassis.database import migrate, open_engine
from services.chassis.identity import Principal
from tests.support.clock import START, FakeClock, SequentialIds
from tests.support.postgres import Cluster

ANN = Principal(tenant="acme", user="ann")
BOB = Principal(tenant="acme", user="bob", scopes=frozenset({"approvals:decide"}))
EVE = Principal(tenant="acme", user="eve")
RIVAL = Principal(tenant="rival", user="ann", scopes=frozenset({"*"}))

SCHEMA = b'{"type":"object","properties":{"to":{"type":"string"},"copies":{"type":"integer"}},"required":["to"]}'


def approval(**fields: Any) -> Approval:
    """Return a pending record of Ann's for `send_mail`, with `fields` changed."""
    return Approval(
        **{
            "tenant": "acme",
            "approval_id": "a1",
            "kind": Kind.TOOL,
            "run_id": "run1",
            "round": 1,
            "call_id": "call1",
            "tool": "send_mail",
            "arguments": b'{"to":"x"}',
            "arguments_digest": "d" * 64,
            "parameters": SCHEMA,
            "requested_by": "ann",
            "requested_at": START,
            "deadline": START + timedelta(minutes=2),
            **fields,
        }
    )


def asked(approval_id: str = "a1", **fields: Any) -> Asked:
    """Return a request for `send_mail`, with `fields` changed."""
    return Asked(
        **{
            "approval_id": approval_id,
            "kind": Kind.TOOL,
            "run_id": "run1",
            "round": 1,
            "call_id": f"call-{approval_id}",
            "tool": "send_mail",
            "arguments": b'{"to": "x"}',
            "parameters": SCHEMA,
            **fields,
        }
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Desk:
    """Everything that asks and decides, over one engine."""

    engine: AsyncEngine
    clock: FakeClock
    bell: LocalBell
    approvals: SqlApprovals
    rules_store: SqlRules
    log: SqlChangeLog
    outbox: SqlOutbox
    records: Records
    rules: AllowRules
    requests: Requests
    decisions: Decisions
    audit: Audit


def desk_over(engine: AsyncEngine, clock: FakeClock | None = None, operator: Operator | None = None) -> Desk:
    """Return a desk, as one replica has it, over a database that is migrated already."""
    clock = clock or FakeClock()
    bell = LocalBell()
    database = Database(engine)
    approvals, rules_store = SqlApprovals(database, bell), SqlRules(database, bell)
    records = Records(approvals, clock)
    ids = SequentialIds("rule")
    rules = AllowRules(rules_store, clock, ids)
    return Desk(
        engine=engine,
        clock=clock,
        bell=bell,
        approvals=approvals,
        rules_store=rules_store,
        log=SqlChangeLog(database, ["audit"]),
        outbox=SqlOutbox(database),
        records=records,
        rules=rules,
        requests=Requests(approvals, records, rules, operator or Operator(), clock),
        decisions=Decisions(approvals, records, clock, ids),
        audit=Audit(SqlAuditLog(database)),
    )


# One migrated database for all tests of a session and kind: making a new one costs more than most tests.
_prepared: dict[str, str] = {}


async def prepared_url(request: pytest.FixtureRequest) -> str:
    """Return the URL of a migrated database without rows, SQLite or PostgreSQL by the fixture's parameter."""
    kind: str = request.param
    if kind == "sqlite":
        template = await _template(request)
        copy: Path = request.getfixturevalue("tmp_path") / "approval.sqlite3"
        shutil.copyfile(template, copy)
        return f"sqlite:///{copy}"
    cluster: Cluster = request.getfixturevalue("postgres")
    key = str(cluster.folder)
    if key not in _prepared:
        _prepared[key] = f"postgresql+asyncpg://postgres@127.0.0.1:{cluster.port}/{cluster.create_database()}"
        await _migrate(_prepared[key])
    await _clear(_prepared[key])
    return _prepared[key]


async def _template(request: pytest.FixtureRequest) -> str:
    if "sqlite" not in _prepared:
        factory: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
        file = factory.mktemp("approval") / "template.sqlite3"
        await _migrate(f"sqlite:///{file}")
        _prepared["sqlite"] = str(file)
    return _prepared["sqlite"]


async def _migrate(url: str) -> None:
    engine = open_engine(url)
    await migrate(engine, MIGRATIONS)
    # Closing the last connection puts SQLite's log into the one file that is copied.
    await engine.dispose()


async def _clear(url: str) -> None:
    engine = open_engine(url)
    async with engine.begin() as connection:
        # Without triggers: the audit log refuses to be emptied.
        await connection.execute(text("SET LOCAL session_replication_role = replica"))
        for table in reversed(metadata.sorted_tables):
            await connection.execute(table.delete())
    await engine.dispose()


@asynccontextmanager
async def open_desk(url: str, operator: Operator | None = None) -> AsyncIterator[Desk]:
    """Yield a desk over the migrated database at `url`."""
    engine = open_engine(url)
    try:
        await migrate(engine, MIGRATIONS)
        yield desk_over(engine, operator=operator)
    finally:
        await engine.dispose()

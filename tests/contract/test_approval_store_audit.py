"""The audit log on SQLite and PostgreSQL: chained once, append-only, and any change of it shows."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from services.approval.adapters.database import Database
from services.approval.adapters.sql_audit import FOLLOWER
from services.approval.adapters.sql_changes import lock_cursor
from services.approval.audit import ZERO, Audit
from services.approval.domain import Approve, Edit, Gate, RuleScope
from services.approval.ports import AuditHead
from services.chassis.canonical import canonical_json, digest
from services.chassis.identity import Principal
from tests.support.approvals import ANN, BOB, RIVAL, Desk, asked, desk_over, open_desk, prepared_url


@pytest.fixture(params=["sqlite", "postgres"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    async with open_desk(await prepared_url(request)) as opened:
        yield opened


async def fill(desk: Desk) -> None:
    """Make five entries of Acme's and one of a rival's."""
    await desk.requests.request(ANN, asked("a1"))
    await desk.decisions.decide(BOB, "a1", Approve(remember=RuleScope.ALWAYS), comment="fine")
    await desk.requests.request(RIVAL, asked("a1"))
    await desk.requests.request(ANN, asked("a2", gate=Gate.ASK_ALWAYS))
    await desk.requests.cancel(ANN, "a2")


async def tamper(desk: Desk, statement: str) -> None:
    """Change the log as somebody with the database's own rights could."""
    async with desk.engine.begin() as connection:
        if desk.engine.dialect.name == "postgresql":
            await connection.execute(text("SET LOCAL session_replication_role = replica"))
        else:
            await connection.execute(text("DROP TRIGGER IF EXISTS audit_entries_no_update"))
            await connection.execute(text("DROP TRIGGER IF EXISTS audit_entries_no_delete"))
        await connection.execute(text(statement))


async def test_every_change_is_an_entry_and_each_tenant_has_a_chain_of_its_own(desk: Desk) -> None:
    await fill(desk)
    entries = await desk.audit.read("acme", 0, 100)
    assert [(entry.sequence, entry.action, entry.actor, entry.subject) for entry in entries] == [
        (1, "requested", "ann", "a1"),
        (2, "approved", "bob", "a1"),
        (3, "rule_created", "bob", "rule-1"),
        (4, "requested", "ann", "a2"),
        (5, "cancelled", "ann", "a2"),
    ]
    assert entries[0].previous_hash == ZERO
    assert [entry.sequence for entry in await desk.audit.read("rival", 0, 100)] == [1]
    finding = await desk.audit.verify("acme")
    assert (finding.intact, finding.entries, finding.head.hash) == (True, 5, entries[-1].hash)


async def test_entries_hold_digests_and_facts_but_no_arguments(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1", arguments=b'{"to":"secret-recipient"}'))
    await desk.decisions.decide(BOB, "a1", Edit(arguments=b'{"to":"other-secret"}'), comment="to them instead")
    for entry in await desk.audit.read("acme", 0, 10):
        assert b"secret" not in entry.detail
    detail = json.loads(entry.detail)
    assert detail["comment"] == "to them instead"
    assert detail["edited_digest"] == digest(b'{"to":"other-secret"}')


async def test_entries_of_one_record_can_be_listed(desk: Desk) -> None:
    await fill(desk)
    assert [entry.sequence for entry in await desk.audit.read("acme", 0, 100, "a2")] == [4, 5]


async def test_appenders_of_several_replicas_make_one_chain(desk: Desk) -> None:
    other = desk_over(desk.engine, desk.clock)
    await asyncio.gather(*(desk.requests.request(ANN, asked(f"a{n}")) for n in range(30)))
    await asyncio.gather(*(replica.audit.append() for replica in (desk, other) * 5))
    finding = await desk.audit.verify("acme")
    assert (finding.intact, finding.entries) == (True, 30)


async def test_an_appender_waits_for_another_replicas(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    await desk.audit.append()
    await desk.requests.request(ANN, asked("a2"))
    async with Database(desk.engine).write() as connection:
        await lock_cursor(connection, FOLLOWER)
        waiting = asyncio.create_task(desk.audit.append())
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert not done
    assert await waiting == 1


@pytest.mark.parametrize("statement", ["UPDATE audit_entries SET actor = 'eve'", "DELETE FROM audit_entries"])
async def test_the_database_refuses_to_change_an_entry(desk: Desk, statement: str) -> None:
    await fill(desk)
    await desk.audit.append()
    with pytest.raises(DBAPIError, match="append-only"):
        async with desk.engine.begin() as connection:
            await connection.execute(text(statement))


@pytest.mark.parametrize(
    ("statement", "broken_at"),
    [
        ("UPDATE audit_entries SET actor = 'eve' WHERE tenant = 'acme' AND sequence = 2", 2),
        ("UPDATE audit_entries SET at = at + 1 WHERE tenant = 'acme' AND sequence = 1", 1),
        ("UPDATE audit_entries SET action = 'denied' WHERE tenant = 'acme' AND sequence = 2", 2),
        ("UPDATE audit_entries SET subject = 'a9' WHERE tenant = 'acme' AND sequence = 5", 5),
        ("UPDATE audit_entries SET hash = previous_hash WHERE tenant = 'acme' AND sequence = 3", 3),
        ("DELETE FROM audit_entries WHERE tenant = 'acme' AND sequence = 3", 3),
        ("DELETE FROM audit_entries WHERE tenant = 'acme' AND sequence = 5", 5),
        ("DELETE FROM audit_entries WHERE tenant = 'acme'", 1),
        ("UPDATE audit_entries SET tenant = 'acme', sequence = 6 WHERE tenant = 'rival'", 6),
        ("UPDATE audit_entries SET sequence = sequence + 100 WHERE tenant = 'acme'", 1),
    ],
)
async def test_verification_finds_any_change_and_where_it_begins(desk: Desk, statement: str, broken_at: int) -> None:
    await fill(desk)
    await desk.audit.append()
    await tamper(desk, statement)
    finding = await desk.audit.verify("acme")
    assert (finding.intact, finding.broken_at) == (False, broken_at)
    assert finding.problem


async def test_a_chain_written_anew_shows_to_whoever_noted_a_head(desk: Desk) -> None:
    await fill(desk)
    noted = (await desk.audit.verify("acme")).head
    await tamper(desk, "DELETE FROM audit_entries")
    for forged in ("DELETE FROM audit_heads", "UPDATE cursors SET sequence = 0", "UPDATE changes SET actor = 'eve'"):
        await tamper(desk, forged)
    assert (await desk.audit.verify("acme")).intact
    finding = await desk.audit.verify("acme", noted)
    assert (finding.intact, finding.broken_at) == (False, 5)
    longer = await desk.audit.verify("acme", AuditHead(sequence=99, hash=noted.hash))
    assert not longer.intact


async def test_an_export_is_json_lines_whose_hashes_anybody_can_check(desk: Desk) -> None:
    await fill(desk)
    lines = b"".join([chunk async for chunk in desk.audit.export("acme", 0)]).splitlines()
    previous = ZERO
    for line in lines:
        entry = json.loads(line)
        claimed = entry.pop("hash")
        assert entry["previous_hash"] == previous
        assert digest(canonical_json(entry)) == claimed
        previous = claimed
    assert len(lines) == 5
    assert [chunk async for chunk in desk.audit.export("acme", 5)] == []


async def test_a_tenant_without_entries_is_intact(desk: Desk) -> None:
    audit: Audit = desk.audit
    finding = await audit.verify(Principal(tenant="new", user="x").tenant)
    assert (finding.intact, finding.entries, finding.head.hash) == (True, 0, ZERO)

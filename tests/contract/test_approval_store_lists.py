"""Lists, changes and the schema on SQLite and PostgreSQL; and that no list or decision scans the table."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, event, insert, text

from services.approval.adapters.database import Database
from services.approval.adapters.rows import approval_row
from services.approval.adapters.sql_changes import record
from services.approval.adapters.tables import approvals, metadata
from services.approval.changes import requested
from services.approval.decisions import Decisions
from services.approval.domain import Approve, Deny, Gate, Kind, State
from services.approval.ports import Place
from services.approval.records import Query
from services.chassis import sqlite_prepared
from services.chassis.identity import Principal
from tests.support.approvals import ANN, BOB, EVE, Desk, approval, asked, open_desk, prepared_url
from tests.support.clock import START

PENDING = Query(states=frozenset({State.PENDING}))
OLGA = Principal(tenant="acme", user="olga", groups=frozenset({"ops", "treasury"}))


@pytest.fixture(params=["sqlite", "postgres"])
async def desk(request: pytest.FixtureRequest) -> AsyncIterator[Desk]:
    async with open_desk(await prepared_url(request)) as opened:
        yield opened


async def ids(desk: Desk, principal: Principal, query: Query | None = None) -> list[str]:
    return [found.approval_id for found in await desk.records.page(principal, query or Query(), None, 100)]


async def test_the_migrated_schema_is_the_one_the_code_uses(desk: Desk) -> None:
    def differences(connection: Connection) -> list[Any]:
        found: list[Any] = compare_metadata(MigrationContext.configure(connection), metadata)
        return found

    async with desk.engine.connect() as connection:
        assert await connection.run_sync(differences) == []


async def test_lists_are_newest_first_and_pages_miss_and_repeat_nothing(desk: Desk) -> None:
    for number in range(9):
        # Three at a time were asked for at the same moment.
        if number % 3 == 0:
            desk.clock.advance(1)
        await desk.requests.request(ANN, asked(f"a{number}"))
    seen: list[str] = []
    place: Place | None = None
    while page := await desk.records.page(ANN, Query(), place, 2):
        seen += [found.approval_id for found in page]
        place = Place(at=page[-1].requested_at, id=page[-1].approval_id)
    assert seen == [f"a{number}" for number in reversed(range(9))]


async def test_filters_narrow_a_list(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1", run_id="run1"))
    await desk.requests.request(ANN, asked("a2", run_id="run2", tool="other"))
    await desk.requests.request(ANN, asked("a3", kind=Kind.CONTINUE))
    await desk.requests.request(ANN, asked("a4", timeout=timedelta(seconds=1)))
    await desk.decisions.decide(ANN, "a2", Deny())
    desk.clock.advance(1)
    assert await ids(desk, ANN) == ["a4", "a3", "a2", "a1"]
    assert await ids(desk, ANN, PENDING) == ["a3", "a1"]
    assert await ids(desk, ANN, Query(states=frozenset({State.DENIED, State.EXPIRED}))) == ["a4", "a2"]
    assert await ids(desk, ANN, Query(run_id="run2")) == ["a2"]
    assert await ids(desk, ANN, Query(tool="other")) == ["a2"]
    assert await ids(desk, ANN, Query(kind=Kind.CONTINUE)) == ["a3"]


async def test_everybody_lists_what_he_may_see(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    await desk.requests.request(ANN, asked("a2", gate=Gate.QUORUM, quorum=1, group="ops"))
    await desk.requests.request(EVE, asked("a3"))
    await desk.requests.request(OLGA, asked("a4", gate=Gate.QUORUM, quorum=1, group="ops"))
    await desk.requests.request(EVE, asked("a5", gate=Gate.QUORUM, quorum=1, group="treasury"))
    assert await ids(desk, ANN) == ["a2", "a1"]
    assert await ids(desk, OLGA) == ["a5", "a4", "a2"]
    assert await ids(desk, BOB) == ["a5", "a4", "a3", "a2", "a1"]
    assert await ids(desk, replace(OLGA, tenant="rival")) == []


async def test_a_list_settles_what_has_lapsed(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    desk.clock.advance(120)
    [found] = await desk.records.page(ANN, Query(states=frozenset({State.EXPIRED})), None, 10)
    assert found.approval_id == "a1"


async def test_changes_come_in_the_order_of_commits_without_gaps_for_a_follower(desk: Desk) -> None:
    """A follower that reads while fifty writers commit sees every change once, in rising order."""
    await asyncio.gather(*(desk.requests.request(ANN, asked(f"a{n}")) for n in range(10)))
    seen: list[tuple[int, str]] = []

    async def follow() -> None:
        cursor = 0
        while len(seen) < 60:
            changes = await desk.log.after(cursor, 100)
            seen.extend((change.sequence, change.subject) for change in changes)
            cursor = changes[-1].sequence if changes else cursor
            await asyncio.sleep(0)

    async def write() -> None:
        await asyncio.gather(*(desk.requests.request(ANN, asked(f"b{n}")) for n in range(50)))

    async with asyncio.timeout(30):
        await asyncio.gather(follow(), write())
    assert len({subject for _, subject in seen}) == 60
    assert [sequence for sequence, _ in seen] == sorted(sequence for sequence, _ in seen)


async def test_a_later_change_waits_for_an_earlier_one_to_be_committed(desk: Desk) -> None:
    """Else a follower could read the later one first and pass over the earlier one for ever."""
    database = Database(desk.engine)

    async def later() -> None:
        async with database.write() as connection:
            await record(connection, [requested(approval(approval_id="later"))])

    async with database.write() as connection:
        await record(connection, [requested(approval(approval_id="earlier"))])
        waiting = asyncio.create_task(later())
        done, _ = await asyncio.wait({waiting}, timeout=0.3)
        assert not done
        assert await desk.log.after(0, 10) == []
    await waiting
    assert [change.subject for change in await desk.log.after(0, 10)] == ["earlier", "later"]


async def test_changes_are_pruned_only_after_every_follower_has_them(desk: Desk) -> None:
    await desk.requests.request(ANN, asked("a1"))
    desk.clock.advance(100)
    assert await desk.log.prune(desk.clock.now()) == 0
    await desk.audit.append()
    await desk.requests.request(ANN, asked("a2"))
    assert await desk.log.prune(desk.clock.now()) == 1
    assert [change.subject for change in await desk.log.after(0, 10)] == ["a2"]
    await desk.audit.append()
    assert [entry.subject for entry in await desk.audit.read("acme", 0, 10)] == ["a1", "a2"]


async def fill(desk: Desk, count: int) -> None:
    """Store `count` pending records of a thousand users, tools and runs."""
    rows = [
        approval_row(
            approval(
                approval_id=f"a{n:06}",
                requested_by=f"user{n % 1000}",
                tool=f"tool{n % 100}",
                run_id=f"run{n % 1000}",
                group="ops" if n % 100 == 0 else "",
                state=State.PENDING if n % 2 else State.APPROVED,
                requested_at=START + timedelta(milliseconds=n),
                deadline=START + timedelta(days=1, milliseconds=n),
            )
        )
        for n in range(count)
    ]
    async with desk.engine.begin() as connection:
        for start in range(0, count, 2000):
            await connection.execute(insert(approvals), rows[start : start + 2000])
    async with desk.engine.begin() as connection:
        await connection.execute(text("ANALYZE"))


@contextmanager
def statements(desk: Desk) -> Iterator[list[tuple[str, Any]]]:
    """Collect what is sent to the database inside the block."""
    sent: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: bool) -> None:
        if "approvals" in statement and statement.startswith(("SELECT", "UPDATE", "DELETE")):
            sent.append((statement, parameters))

    plainly = sqlite_prepared.PreparedConnection.execute

    async def noted(self: sqlite_prepared.PreparedConnection, statement: Any, parameters: Any = None) -> Any:
        if not isinstance(parameters, list):
            form = sqlite_prepared._form(statement, self.dialect, parameters or {}, many=False)
            note(None, None, form.sql, form.values(parameters or {}), None, many=False)
        return await plainly(self, statement, parameters)

    event.listen(desk.engine.sync_engine, "before_cursor_execute", note)
    try:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(sqlite_prepared.PreparedConnection, "execute", noted)
            yield sent
    finally:
        event.remove(desk.engine.sync_engine, "before_cursor_execute", note)


async def plan(desk: Desk, statement: str, parameters: Any) -> str:
    prefix = "EXPLAIN QUERY PLAN " if desk.engine.dialect.name == "sqlite" else "EXPLAIN "
    async with desk.engine.connect() as connection:
        rows = await connection.exec_driver_sql(prefix + statement, tuple(parameters))
        return "\n".join(" ".join(map(str, row)) for row in rows)


Work = Callable[[Desk], Awaitable[object]]


async def decide(desk: Desk) -> None:
    decisions: Decisions = desk.decisions
    await decisions.decide(BOB, "a000501", Approve())


WORK: dict[str, Work] = {
    "list all pending": lambda desk: desk.records.page(BOB, PENDING, None, 50),
    "list everything": lambda desk: desk.records.page(BOB, Query(), None, 50),
    "list from the middle": lambda desk: desk.records.page(
        BOB, PENDING, Place(at=START + timedelta(seconds=2), id="a002000"), 50
    ),
    "list my own": lambda desk: desk.records.page(
        Principal(tenant="acme", user="user7", groups=frozenset({"ops"})), PENDING, None, 50
    ),
    "list a run": lambda desk: desk.records.page(BOB, Query(run_id="run7"), None, 50),
    "list a tool": lambda desk: desk.records.page(BOB, Query(tool="tool7", states=PENDING.states), None, 50),
    "get many": lambda desk: desk.records.many(BOB, [f"a{n:06}" for n in range(100)]),
    "decide": decide,
    "sweep": lambda desk: desk.records.sweep(),
    "expire": lambda desk: desk.approvals.expire(START + timedelta(days=1, milliseconds=50), 100),
}


async def test_nothing_scans_the_table(desk: Desk) -> None:
    await fill(desk, 10_000)
    for name, work in WORK.items():
        with statements(desk) as sent:
            await work(desk)
        assert sent, name
        for statement, parameters in sent:
            explained = await plan(desk, statement, parameters)
            assert "SCAN approvals" not in explained, f"{name}: {statement}\n{explained}"
            assert "Seq Scan on approvals" not in explained, f"{name}: {statement}\n{explained}"

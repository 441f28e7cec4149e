"""Approvals among many: what a page, a request and a decision cost with 1,000 and with 100,000 records pending.

Usage: `python benchmarks/approval.py [--few-url URL --url URL] [--records N]`. New SQLite files by default; the URLs
take two empty PostgreSQL databases. The figures that count are ratios of one run: the cost among many over the cost
among few, which stays near 1 when nothing scans, and the cost of a request over that of a call that touches no
database. Ends with 1 when a plan scans the table or a ratio is above its limit.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "protos" / "gen")]

from sqlalchemy import event, insert, text  # noqa: E402
from sqlalchemy.ext.asyncio import AsyncEngine  # noqa: E402

from proctor.approval.v1 import approval_service_pb2 as pb  # noqa: E402
from proctor.approval.v1 import approval_service_pb2_grpc as pb_grpc  # noqa: E402
from services.approval.adapters.database import Database  # noqa: E402
from services.approval.adapters.notify_local import LocalBell  # noqa: E402
from services.approval.adapters.rows import approval_row  # noqa: E402
from services.approval.adapters.sql_audit import SqlAuditLog  # noqa: E402
from services.approval.adapters.sql_rules import SqlRules  # noqa: E402
from services.approval.adapters.sql_store import SqlApprovals  # noqa: E402
from services.approval.adapters.tables import approvals as table  # noqa: E402
from services.approval.audit import Audit  # noqa: E402
from services.approval.bootstrap import MIGRATIONS, build  # noqa: E402
from services.approval.decisions import Decisions  # noqa: E402
from services.approval.domain import Approval, Approve, Kind, State  # noqa: E402
from services.approval.policy import Operator  # noqa: E402
from services.approval.ports import Place  # noqa: E402
from services.approval.records import Query, Records  # noqa: E402
from services.approval.requests import Asked, Requests  # noqa: E402
from services.approval.rules import AllowRules  # noqa: E402
from services.approval.settings import Settings  # noqa: E402
from services.chassis.clock import RandomIds, SystemClock  # noqa: E402
from services.chassis.database import migrate, open_engine  # noqa: E402
from services.chassis.identity import IdentitySigner, IdentityVerifier, Principal  # noqa: E402
from services.chassis.platform import Platform  # noqa: E402
from services.chassis.serve import start_server  # noqa: E402
from services.chassis.settings import Secret  # noqa: E402
from services.chassis.telemetry import no_telemetry  # noqa: E402

FEW = 1_000
ROUNDS = 200
# Load from elsewhere only adds, so the fast tenth says what the work itself costs.
PERCENTILE = 10
# Trees grow one level from few to many and caches miss more; a scan would show as about a hundred.
RATIO_LIMIT = 4.0
BOSS = Principal(tenant="acme", user="boss", scopes=frozenset({"approvals:decide"}))
ANN = Principal(tenant="acme", user="user7")
PENDING = Query(states=frozenset({State.PENDING}))
ARGUMENTS = b'{"code":"' + b"x" * 500 + b'"}'


@dataclass(frozen=True, kw_only=True)
class Bench:
    """The use cases over one database."""

    engine: AsyncEngine
    records: Records
    requests: Requests
    decisions: Decisions
    audit: Audit
    start: datetime


def bench_over(engine: AsyncEngine) -> Bench:
    clock, ids, bell, database = SystemClock(), RandomIds(), LocalBell(), Database(engine)
    approvals = SqlApprovals(database, bell)
    records = Records(approvals, clock)
    rules = AllowRules(SqlRules(database, bell), clock, ids)
    return Bench(
        engine=engine,
        records=records,
        requests=Requests(approvals, records, rules, Operator(), clock),
        decisions=Decisions(approvals, records, clock, ids),
        audit=Audit(SqlAuditLog(database)),
        start=datetime.now(UTC),
    )


async def fill(bench: Bench, first: int, last: int) -> None:
    """Store pending records `first` to `last` of twenty users, a thousand runs and a hundred tools."""
    blank = Approval(
        tenant="acme",
        approval_id="",
        kind=Kind.TOOL,
        run_id="",
        round=1,
        call_id="call",
        arguments=ARGUMENTS,
        arguments_digest="d" * 64,
        requested_by="",
        requested_at=bench.start,
        deadline=bench.start + timedelta(days=1),
    )
    rows = [
        approval_row(
            replace(
                blank,
                approval_id=f"a{n:07}",
                run_id=f"run{n % 1000}",
                tool=f"tool{n % 100}",
                requested_by=f"user{n % 20}",
                requested_at=bench.start - timedelta(milliseconds=n),
            )
        )
        for n in range(first, last)
    ]
    async with bench.engine.begin() as connection:
        for start in range(0, len(rows), 2000):
            await connection.execute(insert(table), rows[start : start + 2000])
    async with bench.engine.begin() as connection:
        await connection.execute(text("ANALYZE"))


Work = Callable[[Bench, str], Awaitable[object]]


def asked(key: str) -> Asked:
    return Asked(
        approval_id=key, kind=Kind.TOOL, run_id="run", round=1, call_id=key, tool="run_code", arguments=ARGUMENTS
    )


async def ask_and_decide(bench: Bench, key: str) -> None:
    await bench.requests.request(ANN, asked(key))
    await bench.decisions.decide(BOSS, key, Approve())


async def list_pending(bench: Bench, key: str) -> None:
    await bench.records.page(BOSS, PENDING, None, 50)


async def list_from_the_middle(bench: Bench, key: str) -> None:
    middle = Place(at=bench.start - timedelta(milliseconds=500), id="a0000500")
    await bench.records.page(BOSS, PENDING, middle, 50)


async def list_my_own(bench: Bench, key: str) -> None:
    await bench.records.page(ANN, PENDING, None, 50)


async def list_one_run(bench: Bench, key: str) -> None:
    await bench.records.page(BOSS, Query(run_id="run7"), None, 1)


async def get_by_id(bench: Bench, key: str) -> None:
    await bench.records.many(BOSS, [f"a{n:07}" for n in range(50)])


async def sweep(bench: Bench, key: str) -> None:
    await bench.records.sweep()


WORK: dict[str, Work] = {
    "list 50 pending": list_pending,
    "list 50 from the middle": list_from_the_middle,
    "list 50 of my own": list_my_own,
    "list one run, any state": list_one_run,
    "get 50 by id": get_by_id,
    "sweep, nothing due": sweep,
    "request and decide": ask_and_decide,
}


def typical(times: list[float]) -> float:
    """Return the percentile of `times` that the figures show."""
    return statistics.quantiles(times, n=100)[PERCENTILE - 1]


async def measure(few: Bench, many: Bench) -> dict[str, tuple[float, float]]:
    """Return the seconds of each kind of work among few and among many, at the percentile.

    The two take turns, so that load from elsewhere meets both alike.
    """
    figures = {}
    for name, work in WORK.items():
        times: tuple[list[float], list[float]] = ([], [])
        for number in range(ROUNDS):
            for bench, kept in zip((few, many), times, strict=True):
                begun = time.perf_counter()
                await work(bench, f"round-{number}")
                kept.append(time.perf_counter() - begun)
        figures[name] = (typical(times[0]), typical(times[1]))
    return figures


@contextmanager
def statements(engine: AsyncEngine) -> Iterator[list[tuple[str, Any]]]:
    """Collect what is sent to the database inside the block."""
    sent: list[tuple[str, Any]] = []

    def note(connection: Any, cursor: Any, statement: str, parameters: Any, context: Any, many: Any) -> None:
        if "approvals" in statement and statement.startswith(("SELECT", "UPDATE")):
            sent.append((statement, parameters))

    event.listen(engine.sync_engine, "before_cursor_execute", note)
    try:
        yield sent
    finally:
        event.remove(engine.sync_engine, "before_cursor_execute", note)


async def scans(bench: Bench) -> list[str]:
    """Return the kinds of work of which a statement's plan reads the whole table."""
    explain = "EXPLAIN QUERY PLAN " if bench.engine.dialect.name == "sqlite" else "EXPLAIN "
    found = []
    for name, work in WORK.items():
        with statements(bench.engine) as sent:
            await work(bench, f"plan-{name}")
        for statement, parameters in sent:
            async with bench.engine.connect() as connection:
                rows = await connection.exec_driver_sql(explain + statement, tuple(parameters))
                plan = "\n".join(" ".join(map(str, row)) for row in rows)
            if "SCAN approvals" in plan or "Seq Scan on approvals" in plan:
                found.append(f"{name}:\n{statement}\n{plan}")
    return found


async def over_the_wire(url: str, folder: Path) -> tuple[float, float, float]:
    """Return seconds of a call without database, of RequestApproval and of Decide, over a unix socket."""
    clock, key = SystemClock(), "bench-only-" + "0" * 32
    platform = Platform(
        clock=clock,
        ids=RandomIds(),
        telemetry=no_telemetry(),
        signer=IdentitySigner(key, clock),
        verifier=IdentityVerifier(key, clock),
    )
    server = await start_server(
        await build(Settings(database_url=Secret(url)), platform), f"unix:{folder}/bench.sock", platform
    )
    channel = platform.channel(server.address)
    stub: Any = pb_grpc.ApprovalServiceStub(channel)
    metadata = platform.signer.metadata(BOSS)

    async def timed(call: Callable[[int], Awaitable[object]]) -> float:
        times = []
        for number in range(ROUNDS):
            begun = time.perf_counter()
            await call(number)
            times.append(time.perf_counter() - begun)
        return typical(times)

    def request(number: int) -> Awaitable[object]:
        wanted = pb.RequestApprovalRequest(
            approval_id=f"wire-{number}",
            kind=pb.APPROVAL_KIND_TOOL,
            run_id="wire",
            round=1,
            call_id=str(number),
            tool="run_code",
            arguments_json=ARGUMENTS,
        )
        call: Awaitable[object] = stub.RequestApproval(wanted, metadata=metadata)
        return call

    def decide(number: int) -> Awaitable[object]:
        decision = pb.DecideRequest(approval_id=f"wire-{number}", approve=pb.ApproveDecision())
        call: Awaitable[object] = stub.Decide(decision, metadata=metadata)
        return call

    try:
        empty = await timed(lambda _: stub.EvaluateGate(pb.EvaluateGateRequest(tool="x"), metadata=metadata))
        return empty, await timed(request), await timed(decide)
    finally:
        await channel.close()
        await server.stop(1)


async def verification(bench: Bench) -> tuple[int, float]:
    """Return how many audit entries there are, and seconds to verify them."""
    await bench.audit.append()
    begun = time.perf_counter()
    finding = await bench.audit.verify("acme")
    if not finding.intact:
        raise RuntimeError(finding.problem)
    return finding.entries, time.perf_counter() - begun


async def open_bench(url: str, records: int) -> Bench:
    """Return the use cases over a new database with `records` pending."""
    engine = open_engine(url)
    await migrate(engine, MIGRATIONS)
    bench = bench_over(engine)
    await fill(bench, 0, records)
    return bench


async def main(few_url: str, url: str, many: int, folder: Path) -> int:
    small, bench = await open_bench(few_url, FEW), await open_bench(url, many)
    print(f"{f'fast tenth of {ROUNDS}':<26}{f'{FEW:,}':>12}{f'{many:,}':>12}{'ratio':>9}")
    worst = 0.0
    for name, (among_few, among_many) in (await measure(small, bench)).items():
        ratio = among_many / among_few
        worst = max(worst, ratio)
        print(f"{name:<26}{among_few * 1e3:>9.2f} ms{among_many * 1e3:>9.2f} ms{ratio:>9.2f}")
    scanning = await scans(bench)
    print(f"plans that scan the table: {len(scanning)}")
    print("\n\n".join(scanning))
    entries, seconds = await verification(bench)
    print(f"audit: {entries:,} entries verified at {entries / seconds:,.0f}/s")
    await small.engine.dispose()
    await bench.engine.dispose()
    empty, request, decide = await over_the_wire(url, folder)
    print(f"over the wire: no database {empty * 1e3:.2f} ms, request {request * 1e3:.2f} ms", end="")
    print(f" ({request / empty:.1f}×), decide {decide * 1e3:.2f} ms ({decide / empty:.1f}×)")
    return 1 if scanning or worst > RATIO_LIMIT else 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--few-url", default="")
    parser.add_argument("--url", default="")
    parser.add_argument("--records", type=int, default=100_000)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        few_url = options.few_url or f"sqlite:///{scratch}/few.sqlite3"
        url = options.url or f"sqlite:///{scratch}/many.sqlite3"
        raise SystemExit(asyncio.run(main(few_url, url, options.records, Path(scratch))))

"""Whether a run that waited may go on, on SQLite and PostgreSQL."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.domain.run import KeyEnded
from services.orchestrator.domain.usage import Quota, QuotaExceeded, QuotaScope
from services.orchestrator.journal.ports import LeaseTerms
from tests.support.clock import FakeClock
from tests.support.journal_kit import new_run

TERMS = LeaseTerms(owner="one")


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url, FakeClock())
    yield opened
    await opened.close()


async def test_a_quota_counts_the_runs_own_reservation_once(database: Database) -> None:
    usage, standing = database.usage, database.standing
    run = (await database.runs.admit(new_run(key_id="k1", reserved_tokens=800), TERMS)).run
    await usage.set_quota("acme", Quota(scope=QuotaScope.TENANT, runs=1, tokens=800))
    await standing.check(run)
    await usage.set_quota("acme", Quota(scope=QuotaScope.KEY, subject="k1", tokens=799))
    with pytest.raises(QuotaExceeded, match="the key's quota of 799 tokens"):
        await standing.check(run)
    await usage.set_quota("acme", Quota(scope=QuotaScope.KEY, subject="k1"))
    await usage.set_quota("acme", Quota(scope=QuotaScope.USER, runs=0))
    with pytest.raises(QuotaExceeded, match="the user's quota of 0 runs"):
        await standing.check(run)


async def test_a_run_of_a_revoked_key_does_not_go_on(database: Database) -> None:
    standing = database.standing
    runs = {key: (await database.runs.admit(new_run(key_id=key), TERMS)).run for key in ("k1", "k2", "")}
    for _ in range(2):
        await standing.end_key("acme", "k1")
    await standing.end_key("rival", "k2")
    with pytest.raises(KeyEnded, match="'k1'"):
        await standing.check(runs["k1"])
    await standing.check(runs["k2"])
    await standing.check(runs[""])
    assert await standing.forget_keys(FakeClock().now()) == 0
    assert await standing.forget_keys(FakeClock().now() + timedelta(seconds=1)) == 2
    await standing.check(runs["k1"])

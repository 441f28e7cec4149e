"""Many at once: one decision wins, everyone learns which, nothing is counted twice."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest

from services.approval.decisions import Decided
from services.approval.domain import Approve, Deny, Edit, Gate, State
from services.approval.errors import ApprovalDecided, ApprovalExpired
from services.chassis.identity import Principal
from tests.support.approvals import ANN, Desk, asked, open_desk, prepared_url

DECIDERS = 50


@pytest.fixture(params=["sqlite", "postgres"])
async def replicas(request: pytest.FixtureRequest) -> AsyncIterator[list[Desk]]:
    """Three replicas with connections of their own to one database."""
    url = await prepared_url(request)
    async with AsyncExitStack() as stack:
        yield [await stack.enter_async_context(open_desk(url)) for _ in range(3)]


def decider(number: int) -> Principal:
    return Principal(
        tenant="acme",
        user=f"user{number}",
        scopes=frozenset({"approvals:decide"}),
        groups=frozenset({"ops"}),
    )


async def all_of(calls: Sequence[Awaitable[Any]]) -> list[Any]:
    return list(await asyncio.gather(*calls, return_exceptions=True))


async def test_of_fifty_deciders_one_wins_and_the_others_learn_who(replicas: list[Desk]) -> None:
    await replicas[0].requests.request(ANN, asked())
    decisions = (Approve(), Deny(), Edit(arguments=b'{"to":"y"}'))
    outcomes = await all_of(
        [
            replicas[number % 3].decisions.decide(decider(number), "a1", decisions[number % len(decisions)])
            for number in range(DECIDERS)
        ]
    )
    [won] = [outcome for outcome in outcomes if isinstance(outcome, Decided)]
    lost = [outcome for outcome in outcomes if isinstance(outcome, ApprovalDecided)]
    assert len(lost) == DECIDERS - 1
    assert {failure.metadata["decided_by"] for failure in lost} == {won.approval.decided_by}
    assert {failure.metadata["state"] for failure in lost} == {won.approval.state}
    assert await replicas[1].records.one("acme", "a1") == won.approval
    entries = await replicas[2].audit.read("acme", 0, 100)
    assert [entry.action for entry in entries] == ["requested", won.approval.state]


async def test_fifty_sendings_of_one_decision_are_one_decision(replicas: list[Desk]) -> None:
    await replicas[0].requests.request(ANN, asked())
    outcomes = await all_of([replicas[number % 3].decisions.decide(ANN, "a1", Approve()) for number in range(DECIDERS)])
    assert Counter(outcome.now for outcome in outcomes) == {True: 1, False: DECIDERS - 1}


async def test_a_quorum_asked_of_fifty_at_once_counts_each_agreement_once(replicas: list[Desk]) -> None:
    await replicas[0].requests.request(ANN, asked(gate=Gate.QUORUM, quorum=20, group="ops"))
    outcomes = await all_of(
        [
            # Everybody clicks twice, at two replicas.
            replicas[(number + twice) % 3].decisions.decide(decider(number), "a1", Approve())
            for number in range(DECIDERS // 2)
            for twice in range(2)
        ]
    )
    record = await replicas[0].records.one("acme", "a1")
    assert record.state is State.APPROVED
    assert len(record.agreed) == len(set(record.agreed)) == 20
    told = [outcome for outcome in outcomes if isinstance(outcome, Decided)]
    assert sum(outcome.now for outcome in told) == 20
    refused = [outcome for outcome in outcomes if not isinstance(outcome, Decided)]
    assert all(isinstance(failure, ApprovalDecided) for failure in refused)
    actions = Counter(entry.action for entry in await replicas[0].audit.read("acme", 0, 500))
    assert actions == {"requested": 1, "agreed": 19, "approved": 1}


async def test_deciding_cancelling_and_expiring_at_once_end_in_one_state(replicas: list[Desk]) -> None:
    for number in range(20):
        await replicas[0].requests.request(ANN, asked(f"a{number}", timeout=timedelta(seconds=60)))
    # The first replica's clock has passed the deadline, the others' have not.
    replicas[0].clock.advance(60)
    calls: list[Awaitable[Any]] = []
    for number in range(20):
        calls.append(replicas[1].decisions.decide(decider(1), f"a{number}", Approve()))
        calls.append(replicas[2].requests.cancel(ANN, f"a{number}"))
    outcomes = await all_of([*calls, *(replicas[0].records.sweep() for _ in range(5))])
    expected = (Decided, ApprovalDecided, ApprovalExpired)
    assert all(isinstance(outcome, expected) for outcome in outcomes[0:40:2])
    entries = await replicas[0].audit.read("acme", 0, 500)
    for number in range(20):
        record = await replicas[0].records.one("acme", f"a{number}")
        told = [entry.action for entry in entries if entry.subject == f"a{number}"]
        assert told == ["requested", str(record.state)]


async def test_many_outstanding_each_get_their_own_decision(replicas: list[Desk]) -> None:
    await all_of([replicas[n % 3].requests.request(ANN, asked(f"a{n}")) for n in range(100)])
    await all_of(
        [replicas[n % 3].decisions.decide(decider(n), f"a{n}", Approve() if n % 2 else Deny()) for n in range(100)]
    )
    records = await replicas[0].records.many(ANN, [f"a{n}" for n in range(100)])
    told = {record.approval_id: (record.state, record.decided_by) for record in records}
    assert told == {f"a{n}": (State.APPROVED if n % 2 else State.DENIED, f"user{n}") for n in range(100)}
    assert (await replicas[0].audit.verify("acme")).entries == 200

"""The run store's contract, on SQLite and PostgreSQL: admission, leases, epochs, cancellation, checkpoints."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from services.chassis.clock import SystemClock
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.codec_events import stamped
from services.orchestrator.domain.events import PauseKind, PendingCall, StampedEvent
from services.orchestrator.domain.messages import Usage
from services.orchestrator.domain.run import (
    Checkpoint,
    RequestIdReused,
    RunNotFound,
    RunState,
    Segment,
)
from services.orchestrator.journal.ports import (
    Ending,
    LeaseTerms,
    Ownership,
    RunCursor,
    RunWrite,
    WriteOutcome,
)
from tests.support.journal_kit import new_run

ONE = LeaseTerms(owner="one", duration=timedelta(minutes=1), block=64)
TWO = replace(ONE, owner="two")
BRIEF = replace(ONE, duration=timedelta(milliseconds=1))


@pytest.fixture
async def database(database_url: str) -> AsyncIterator[Database]:
    opened = await Database.open(database_url, SystemClock())
    yield opened
    await opened.close()


def event(sequence: int, kind: int = 11) -> StampedEvent:
    return stamped(sequence, kind, f"payload {sequence}".encode())


def piece(owned: Ownership, *sequences: int, **changes: Any) -> RunWrite:
    write = RunWrite(
        run_id=owned.run.run_id,
        owner=owned.owner,
        epoch=owned.epoch,
        last_sequence=max(sequences, default=0),
        reserved_until=owned.reserved_until,
        events=tuple(event(sequence) for sequence in sequences),
    )
    return replace(write, **changes)


async def admitted(database: Database, terms: LeaseTerms = ONE, **changes: Any) -> Ownership:
    admission = await database.runs.admit(new_run(**changes), terms)
    assert admission.ownership is not None
    return admission.ownership


async def until_expired(database: Database, run_id: str) -> None:
    """Wait for the database's own clock to pass the lease."""
    async with asyncio.timeout(5):
        while run_id not in {run.run_id for run in await database.runs.orphans()}:
            await asyncio.sleep(0.005)


async def outcomes(database: Database, *batch: RunWrite, terms: LeaseTerms = ONE) -> list[WriteOutcome]:
    return [result.outcome for result in await database.runs.write(batch, terms)]


async def test_an_admitted_run_is_owned_and_has_all_it_was_given(database: Database) -> None:
    new = new_run("r1", request_id="q1")
    admission = await database.runs.admit(new, ONE)
    run = await database.runs.get("acme", "r1")
    assert admission.run == run
    assert run == replace(new.run, updated_at=run.updated_at)
    owned = admission.ownership
    assert owned is not None
    assert (owned.epoch, owned.next_sequence, owned.reserved_until, owned.taken_over) == (1, 1, 64, False)
    saved = await database.runs.load_checkpoint("r1")
    assert (saved.head, dict(saved.segments)) == (b"head-1", {b"s1": b"agent"})


async def test_the_same_request_joins_and_another_body_is_refused(database: Database) -> None:
    await database.runs.admit(new_run("r1", request_id="q1"), ONE)
    again = await database.runs.admit(new_run("r2", request_id="q1"), TWO)
    assert (again.run.run_id, again.ownership) == ("r1", None)
    with pytest.raises(RequestIdReused, match="'q1' was used with another body for run 'r1'"):
        await database.runs.admit(new_run("r3", request_id="q1", request_digest="other"), ONE)
    other_user = await database.runs.admit(new_run("r4", request_id="q1", user="bob"), ONE)
    assert other_user.run.run_id == "r4"
    assert other_user.ownership is not None


async def test_one_of_many_equal_requests_at_once_is_admitted(database: Database) -> None:
    admissions = await asyncio.gather(
        *(database.runs.admit(new_run(f"r{n}", request_id="same"), ONE) for n in range(8))
    )
    assert len({admission.run.run_id for admission in admissions}) == 1
    assert sum(admission.ownership is not None for admission in admissions) == 1


async def test_runs_without_a_request_id_never_join(database: Database) -> None:
    await admitted(database, run_id="r1")
    await admitted(database, run_id="r2")
    assert len(await database.runs.list("acme", "ann")) == 2


async def test_a_run_of_another_tenant_does_not_exist(database: Database) -> None:
    await admitted(database, run_id="r1")
    with pytest.raises(RunNotFound):
        await database.runs.get("rival", "r1")
    with pytest.raises(RunNotFound):
        await database.runs.request_cancel("rival", "r1", "eve")
    assert (await database.runs.get("acme", "r1")).cancel_requested_by == ""
    assert await database.runs.list("rival", "ann") == []


async def test_lists_page_newest_first_without_gap_or_double(database: Database) -> None:
    start = SystemClock().now()
    for n in range(7):
        # Two runs share each moment: the id breaks the tie.
        await admitted(database, run_id=f"r{n}", created_at=start + timedelta(seconds=n // 2))
    seen: list[str] = []
    cursor = None
    while page := await database.runs.list("acme", "ann", limit=3, after=cursor):
        seen += [run.run_id for run in page]
        cursor = RunCursor(created_at=page[-1].created_at, run_id=page[-1].run_id)
    assert seen == ["r6", "r5", "r4", "r3", "r2", "r1", "r0"]


async def test_lists_keep_states_and_conversations(database: Database) -> None:
    one = await admitted(database, run_id="r1")
    await admitted(database, run_id="r2")
    await outcomes(database, piece(one, 1, state=RunState.PAUSED))
    paused = await database.runs.list("acme", "ann", states=[RunState.PAUSED, RunState.FAILED])
    assert [run.run_id for run in paused] == ["r1"]
    assert await database.runs.list("acme", "ann", conversation_id="nowhere") == []


async def test_a_run_under_lease_cannot_be_claimed(database: Database) -> None:
    owned = await admitted(database)
    assert await database.runs.claim(owned.run.run_id, TWO) is None
    assert await database.runs.orphans() == []


async def test_taking_over_fences_the_old_owner_and_starts_above_its_block(database: Database) -> None:
    old = await admitted(database, BRIEF)
    run_id = old.run.run_id
    assert await outcomes(database, piece(old, 1, 2), terms=BRIEF) == [WriteOutcome.WRITTEN]
    await until_expired(database, run_id)
    new = await database.runs.claim(run_id, TWO)
    assert new is not None
    assert (new.epoch, new.run.attempt, new.taken_over) == (2, 2, True)
    assert new.next_sequence == 65
    assert new.reserved_until == 128
    assert await outcomes(database, piece(old, 3)) == [WriteOutcome.FENCED]
    assert await outcomes(database, piece(new, 65), terms=TWO) == [WriteOutcome.WRITTEN]
    events = await database.runs.events(run_id, 0, limit=10, max_bytes=10_000)
    assert [e.sequence for e in events] == [1, 2, 65]


async def test_one_of_many_claims_at_once_wins(database: Database) -> None:
    owned = await admitted(database, BRIEF)
    await until_expired(database, owned.run.run_id)
    claims = await asyncio.gather(
        *(database.runs.claim(owned.run.run_id, replace(TWO, owner=f"o{n}")) for n in range(8))
    )
    assert sum(claim is not None for claim in claims) == 1


async def test_a_run_handed_back_is_free_at_once_without_hole_or_attempt(database: Database) -> None:
    owned = await admitted(database)
    await outcomes(database, piece(owned, 1, 2, release=True, checkpoint=Checkpoint(head=b"head-2", min_reader=1)))
    assert await outcomes(database, piece(owned, 3)) == [WriteOutcome.FENCED]
    assert [run.run_id for run in await database.runs.orphans()] == [owned.run.run_id]
    again = await database.runs.claim(owned.run.run_id, TWO)
    assert again is not None
    assert (again.next_sequence, again.run.attempt, again.taken_over) == (3, 1, False)
    assert (await database.runs.load_checkpoint(owned.run.run_id)).head == b"head-2"


async def test_renewing_keeps_a_lease_and_tells_what_is_lost(database: Database) -> None:
    kept, lost = await admitted(database, BRIEF), await admitted(database, BRIEF)
    await until_expired(database, lost.run.run_id)
    assert await database.runs.claim(lost.run.run_id, TWO) is not None
    await database.runs.request_cancel("acme", kept.run.run_id, "bob")
    renewals = await database.runs.renew({kept.run.run_id: 1, lost.run.run_id: 1}, ONE)
    assert [(r.run_id, r.epoch, r.cancel_requested_by) for r in renewals] == [(kept.run.run_id, 1, "bob")]
    assert await database.runs.claim(kept.run.run_id, TWO) is None


async def test_releasing_asks_for_the_right_epoch(database: Database) -> None:
    owned = await admitted(database)
    assert not await database.runs.release(owned.run.run_id, "two", 1)
    assert not await database.runs.release(owned.run.run_id, "one", 2)
    assert await database.runs.release(owned.run.run_id, "one", 1)


async def test_a_run_that_needs_a_later_reader_is_left_alone(database: Database) -> None:
    owned = await admitted(database)
    await outcomes(database, piece(owned, 1, release=True, checkpoint=Checkpoint(head=b"h", min_reader=2)))
    assert await database.runs.orphans(reader=1) == []
    assert await database.runs.claim(owned.run.run_id, TWO) is None
    assert await database.runs.claim(owned.run.run_id, replace(TWO, reader=2)) is not None


async def test_a_fenced_piece_does_not_harm_the_others_of_its_batch(database: Database) -> None:
    stale, live = await admitted(database, BRIEF), await admitted(database)
    await until_expired(database, stale.run.run_id)
    await database.runs.claim(stale.run.run_id, TWO)
    assert await outcomes(database, piece(stale, 1), piece(live, 1), piece(stale, 2), piece(live, 2)) == [
        WriteOutcome.FENCED,
        WriteOutcome.WRITTEN,
        WriteOutcome.FENCED,
        WriteOutcome.WRITTEN,
    ]
    assert (await database.runs.status(live.run.run_id)).last_sequence == 2
    assert (await database.runs.status(stale.run.run_id)).last_sequence == 0


async def test_repeating_a_batch_whose_outcome_was_unknown_writes_it_once(database: Database) -> None:
    owned = await admitted(database)
    batch = (piece(owned, 1), piece(owned, 2, 3, state=RunState.COMPLETED, ending=Ending(), release=True))
    assert await outcomes(database, *batch) == [WriteOutcome.WRITTEN] * 2
    assert await outcomes(database, *batch) == [WriteOutcome.WRITTEN] * 2
    events = await database.runs.events(owned.run.run_id, 0, limit=10, max_bytes=10_000)
    assert [e.sequence for e in events] == [1, 2, 3]


async def test_repeating_a_batch_does_not_bring_an_older_checkpoint_back(database: Database) -> None:
    owned = await admitted(database)
    older, newer = Checkpoint(head=b"older", min_reader=1), Checkpoint(head=b"newer", min_reader=1)
    batch = (piece(owned, checkpoint=older), piece(owned, 1, checkpoint=newer))
    assert await outcomes(database, *batch) == [WriteOutcome.WRITTEN] * 2
    assert await outcomes(database, *batch) == [WriteOutcome.WRITTEN] * 2
    assert (await database.runs.load_checkpoint(owned.run.run_id)).head == b"newer"


async def test_repeating_a_batch_keeps_out_what_came_after_the_end(database: Database) -> None:
    owned = await admitted(database)
    batch = (piece(owned, 1, state=RunState.COMPLETED, ending=Ending(), release=True), piece(owned, 2))
    expected = [WriteOutcome.WRITTEN, WriteOutcome.FENCED]
    assert await outcomes(database, *batch) == expected
    assert await outcomes(database, *batch) == expected
    assert (await database.runs.status(owned.run.run_id)).last_sequence == 1


async def test_repeating_a_hand_back_is_one_hand_back(database: Database) -> None:
    owned = await admitted(database)
    assert await outcomes(database, piece(owned, release=True)) == [WriteOutcome.WRITTEN]
    assert await outcomes(database, piece(owned, release=True)) == [WriteOutcome.WRITTEN]


async def test_an_ended_run_accepts_nothing_more(database: Database) -> None:
    owned = await admitted(database)
    await outcomes(database, piece(owned, 1, state=RunState.FAILED, ending=Ending(failure="INTERNAL"), release=True))
    assert await outcomes(database, piece(owned, 2, state=RunState.COMPLETED)) == [WriteOutcome.FENCED]
    run = await database.runs.get("acme", owned.run.run_id)
    assert (run.state, run.failure, run.last_sequence) == (RunState.FAILED, "INTERNAL", 1)
    assert run.finished_at is not None
    assert await database.runs.claim(owned.run.run_id, TWO) is None
    assert await database.runs.orphans() == []


async def test_cancellation_refuses_a_guarded_piece_and_nothing_else(database: Database) -> None:
    owned = await admitted(database)
    asked = await database.runs.request_cancel("acme", owned.run.run_id, "bob")
    assert asked.cancel_requested_by == "bob"
    again = await database.runs.request_cancel("acme", owned.run.run_id, "carol")
    assert again.cancel_requested_by == "bob"
    segment = Segment(digest=b"s2", kind="messages", content=b"m")
    refused = piece(
        owned, 2, guarded=True, checkpoint=Checkpoint(head=b"head-2", min_reader=1, new_segments=(segment,))
    )
    results = await database.runs.write((piece(owned, 1), refused, piece(owned, 3)), ONE)
    assert [r.outcome for r in results] == [
        WriteOutcome.WRITTEN,
        WriteOutcome.CANCEL_REQUESTED,
        WriteOutcome.WRITTEN,
    ]
    assert {r.cancel_requested_by for r in results} == {"bob"}
    events = await database.runs.events(owned.run.run_id, 0, limit=10, max_bytes=10_000)
    assert [e.sequence for e in events] == [1, 3]
    saved = await database.runs.load_checkpoint(owned.run.run_id)
    assert saved.head == b"head-1"
    # A later head may refer to it.
    assert saved.segments[b"s2"] == b"m"


async def test_repeating_a_batch_keeps_the_refusal_of_a_guarded_piece(database: Database) -> None:
    owned = await admitted(database)
    started, after = piece(owned, 1, guarded=True), piece(owned, 2)
    assert await outcomes(database, started, after) == [WriteOutcome.WRITTEN] * 2
    await database.runs.request_cancel("acme", owned.run.run_id, "bob")
    assert await outcomes(database, started, after) == [WriteOutcome.WRITTEN] * 2
    refused, later = piece(owned, 3, guarded=True), piece(owned, 4)
    expected = [WriteOutcome.CANCEL_REQUESTED, WriteOutcome.WRITTEN]
    assert await outcomes(database, refused, later) == expected
    assert await outcomes(database, refused, later) == expected


async def test_cancelling_an_ended_run_leaves_it(database: Database) -> None:
    owned = await admitted(database)
    await outcomes(database, piece(owned, 1, state=RunState.COMPLETED, ending=Ending(), release=True))
    asked = await database.runs.request_cancel("acme", owned.run.run_id, "bob")
    assert (asked.state, asked.cancel_requested_by) == (RunState.COMPLETED, "")


async def test_a_pause_is_parked_with_what_it_waits_for(database: Database) -> None:
    owned = await admitted(database)
    waits = (PendingCall(call_id="c1", kind=PauseKind.APPROVAL, approval_id="a1", tool="send_mail"),)
    await outcomes(
        database, piece(owned, 1, state=RunState.PAUSED, pending=waits, usage=Usage(input_tokens=7), release=True)
    )
    (parked,) = await database.runs.parked()
    assert (parked.run_id, parked.pending, parked.usage.input_tokens) == (owned.run.run_id, waits, 7)
    assert await database.runs.parked(after=owned.run.run_id) == []
    assert await database.runs.orphans() == []
    resumed = await database.runs.claim(owned.run.run_id, TWO)
    assert resumed is not None
    assert (resumed.taken_over, resumed.run.pending) == (False, waits)
    assert await database.runs.parked() == []


async def test_callers_that_give_up_leave_no_transaction_open(database: Database) -> None:
    chance = random.Random(1)
    for _ in range(30):
        given_up = [asyncio.create_task(database.runs.admit(new_run(), ONE)) for _ in range(4)]
        await asyncio.sleep(chance.uniform(0, 0.012))
        for task in given_up:
            task.cancel()
        await asyncio.wait(given_up)
        # A transaction left open would hold SQLite's write lock, for which others wait 5 s and fail.
        async with asyncio.timeout(4):
            await database.runs.admit(new_run(), ONE)


async def test_a_process_that_holds_the_database_alone_disowns_all(database: Database) -> None:
    working, paused = await admitted(database), await admitted(database)
    await outcomes(database, piece(paused, 1, state=RunState.PAUSED, release=True))
    await database.runs.disown_all()
    assert await outcomes(database, piece(working, 1)) == [WriteOutcome.FENCED]
    assert [run.run_id for run in await database.runs.orphans()] == [working.run.run_id]
    assert [run.run_id for run in await database.runs.parked()] == [paused.run.run_id]
    taken = await database.runs.claim(working.run.run_id, TWO)
    resumed = await database.runs.claim(paused.run.run_id, TWO)
    assert taken is not None
    assert taken.run.attempt == 2
    assert resumed is not None
    assert resumed.run.attempt == 1


async def test_a_burst_of_new_runs_does_not_hold_up_those_that_work(database: Database) -> None:
    working = await database.runs.admit(new_run(), ONE)
    assert working.ownership is not None
    burst = [asyncio.create_task(database.runs.admit(new_run(), ONE)) for _ in range(100)]
    while not any(task.done() for task in burst):
        await asyncio.sleep(0)
    (renewal,) = await database.runs.renew({working.run.run_id: working.ownership.epoch}, ONE)
    assert renewal.epoch == working.ownership.epoch
    assert sum(task.done() for task in burst) < 50
    assert len({admission.run.run_id for admission in await asyncio.gather(*burst)}) == 100

"""Who wakes a parked run: a decision does, unless its principal may not go on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from services.orchestrator.domain.events import PauseKind, PendingCall
from services.orchestrator.domain.run import KeyEnded, Run, RunState
from services.orchestrator.domain.usage import QuotaExceeded, QuotaScope
from services.orchestrator.ports import ApprovalRecord, RecordState
from services.orchestrator.reconcile import Reconciler, ReconcileSettings
from tests.support.orchestrator_kit import ANN, START, FakeApprovals


@dataclass
class World:
    """The store, the workforce and the standing of one parked run, in memory."""

    refusal: Exception | None = None
    done: list[tuple[str, ...]] = field(default_factory=list)

    async def find(self, run_id: str) -> Run:
        pending = PendingCall(call_id="c1", kind=PauseKind.APPROVAL, approval_id="a1", tool="run_code")
        return Run(
            run_id=run_id,
            tenant="t1",
            user="ann",
            state=RunState.PAUSED,
            agent_id="a",
            agent_name="a",
            agent_version=1,
            model="m1",
            created_at=START,
            updated_at=START,
            pending=(pending,),
        )

    async def parked(self, *, limit: int, after: str) -> list[Run]:
        return [] if after else [await self.find("r1")]

    async def check(self, run: Run) -> None:
        if self.refusal is not None:
            raise self.refusal

    async def take_up(self, run_id: str, cause: str, records: Mapping[str, ApprovalRecord]) -> bool:
        self.done.append(("took up", run_id, cause))
        return True

    async def fail_parked(self, run_id: str, code: str, message: str) -> None:
        self.done.append(("failed", run_id, code))


def reconciler(world: World, state: RecordState) -> Reconciler:
    record = ApprovalRecord(
        approval_id="a1", run_id="r1", call_id="c1", state=state, arguments_digest="", deadline=None
    )
    anything: Any = world
    return Reconciler(
        store=anything,
        approvals=FakeApprovals(records={"a1": record}),
        standing=anything,
        workforce=anything,
        service=ANN,
        settings=ReconcileSettings(),
        reader=1,
    )


@pytest.mark.parametrize(
    ("state", "refusal", "done"),
    [
        (RecordState.PENDING, None, []),
        (RecordState.APPROVED, None, [("took up", "r1", "decision")]),
        (RecordState.EXPIRED, None, [("took up", "r1", "expiry")]),
        (RecordState.APPROVED, KeyEnded("r1", "k1"), [("failed", "r1", "KEY_REVOKED")]),
        (RecordState.EXPIRED, QuotaExceeded(QuotaScope.TENANT, "runs", 0, 1, 1.0), []),
    ],
)
async def test_a_decision_wakes_a_run_whose_principal_may_go_on(
    state: RecordState, refusal: Exception | None, done: list[tuple[str, ...]]
) -> None:
    world = World(refusal)
    await reconciler(world, state)._look_at_parked()
    assert world.done == done


async def test_a_run_without_quota_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    world = World(QuotaExceeded(QuotaScope.TENANT, "tokens", 10, 12, timedelta(hours=1).total_seconds()))
    looking = reconciler(world, RecordState.APPROVED)
    await looking._look_at_parked()
    world.refusal = None
    await looking._look_at_parked()
    assert world.done == [("took up", "r1", "decision")]


async def test_a_decision_that_a_working_run_hears_of_itself_is_not_followed_here() -> None:
    world = World()
    working = {"r2"}
    world.heard = lambda run_id: run_id in working  # type: ignore[attr-defined]
    made = reconciler(world, RecordState.APPROVED)

    async def changes() -> AsyncIterator[str]:
        yield "r2"
        yield "r1"

    made._approvals.changes = changes  # type: ignore[method-assign]
    await made._listen()
    assert made._hints.get_nowait() == "r1"
    assert made._hints.empty()

"""Real processes, killed: what was told stands, what was pending is still answerable."""

from __future__ import annotations

import asyncio
import os
import shlex
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from proctor.approval.v1 import approval_service_pb2 as pb
from proctor.approval.v1 import approval_service_pb2_grpc as pb_grpc
from services.chassis.identity import Principal
from tests.support.approval_wire import serve_approval
from tests.support.approvals import ANN, BOB
from tests.support.platform import KEY, test_platform
from tests.support.postgres import Cluster
from tests.support.servers import socket_address

ROOT = Path(__file__).resolve().parents[2]
AUDITOR = Principal(tenant="acme", user="audrey", scopes=frozenset({"approvals:audit"}))
APPROVE = pb.ApproveDecision()


class Process:
    """`python -m services.approval` on a unix socket, and calls to it."""

    def __init__(self, address: str, data_dir: Path) -> None:
        self._address = address
        self._environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "protos" / "gen")]),
            "PROCTOR_SIGNING_KEY": KEY,
            "PROCTOR_APPROVAL_LISTEN": address,
            "PROCTOR_APPROVAL_DATA_DIR": str(data_dir),
            "PROCTOR_LOG_LEVEL": "ERROR",
        }
        self._process: asyncio.subprocess.Process | None = None
        self._platform = test_platform()
        self._channel: grpc.aio.Channel | None = None

    async def start(self) -> None:
        """Start the process; calls wait until it serves."""
        self._process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "services.approval", cwd=ROOT, env=self._environ
        )
        self._channel = self._platform.channel(self._address)

    async def call(self, principal: Principal, method: str, **fields: Any) -> Any:
        stub: Any = pb_grpc.ApprovalServiceStub(self._channel)  # type: ignore[arg-type]
        request = getattr(pb, f"{method}Request")(**fields)
        metadata = self._platform.signer.metadata(principal)
        return await getattr(stub, method)(request, metadata=metadata, wait_for_ready=True, timeout=60)

    async def end(self, number: signal.Signals) -> int:
        """Send a signal and return the exit code."""
        assert self._process is not None
        assert self._channel is not None
        if self._process.returncode is None:
            self._process.send_signal(number)
        code = await self._process.wait()
        await self._channel.close()
        return code


@asynccontextmanager
async def process(data_dir: Path) -> AsyncIterator[Process]:
    async with socket_address("approval") as address:
        running = Process(address, data_dir)
        await running.start()
        try:
            yield running
        finally:
            await running.end(signal.SIGKILL)


async def ask(running: Process, approval_id: str = "a1") -> pb.Approval:
    response = await running.call(
        ANN,
        "RequestApproval",
        approval_id=approval_id,
        kind=pb.APPROVAL_KIND_TOOL,
        run_id="run1",
        round=1,
        call_id=approval_id,
        tool="send_mail",
        timeout=Duration(seconds=86400),
    )
    approval: pb.Approval = response.approval
    return approval


async def test_killed_at_each_moment_it_keeps_what_was_asked_and_what_was_told(tmp_path: Path) -> None:
    async with process(tmp_path) as running:
        asked = await ask(running)
        await running.end(signal.SIGKILL)

        await running.start()
        [found] = (await running.call(ANN, "BatchGetApprovals", approval_ids=["a1"])).approvals
        assert found == asked
        assert await ask(running) == asked
        decided = await running.call(BOB, "Decide", approval_id="a1", approve=APPROVE)
        assert decided.decided_now
        await running.end(signal.SIGKILL)

        await running.start()
        again = await running.call(BOB, "Decide", approval_id="a1", approve=APPROVE)
        assert (again.decided_now, again.approval) == (False, decided.approval)
        entries = (await running.call(AUDITOR, "ListAuditEntries")).entries
        assert [entry.action for entry in entries] == ["requested", "approved"]
        assert (await running.call(AUDITOR, "VerifyAudit")).intact
        assert await running.end(signal.SIGTERM) == 0


@pytest.mark.prove
async def test_killed_again_and_again_under_load_it_loses_no_decision_and_breaks_no_chain(tmp_path: Path) -> None:
    told: dict[str, int] = {}

    async def work(running: Process, number: int) -> None:
        approval_id = f"a{number}"
        await ask(running, approval_id)
        decided = await running.call(BOB, "Decide", approval_id=approval_id, deny=pb.DenyDecision())
        told[approval_id] = decided.approval.state

    async with process(tmp_path) as running:
        for life in range(5):
            async with asyncio.timeout(60):
                await ask(running, f"first{life}")
            workers = [asyncio.create_task(work(running, life * 100 + n)) for n in range(40)]
            while sum(worker.done() for worker in workers) < 10:
                await asyncio.sleep(0)
            await running.end(signal.SIGKILL)
            await asyncio.gather(*workers, return_exceptions=True)
            await running.start()
        assert len(told) >= 50
        found = (await running.call(ANN, "BatchGetApprovals", approval_ids=list(told))).approvals
        assert {record.approval_id: record.state for record in found} == told
        assert (await running.call(AUDITOR, "VerifyAudit")).intact


async def test_a_database_that_restarts_is_found_again(postgres: Cluster, postgres_url: str) -> None:
    # As the running one was started: `pg_ctl start` alone would take another port.
    started = ["-o", shlex.join(shlex.split((postgres.folder / "data" / "postmaster.opts").read_text())[1:])]
    async with serve_approval(postgres_url) as remote:
        await remote.ask(ANN, "a1")
        await asyncio.to_thread(postgres.control, "stop", "-m", "fast")
        failure = await remote.refused(BOB, "Decide", approval_id="a1", approve=APPROVE)
        assert (failure.code, failure.reason) == (grpc.StatusCode.UNAVAILABLE, "UNAVAILABLE")
        assert failure.retry_after
        await asyncio.to_thread(postgres.control, "start", *started)
        decided = await remote.call(BOB, "Decide", approval_id="a1", approve=APPROVE)
        assert decided.approval.state == pb.APPROVAL_STATE_APPROVED
        verified = await remote.call(AUDITOR, "VerifyAudit")
        assert (verified.intact, verified.entries) == (True, 2)

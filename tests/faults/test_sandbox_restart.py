"""What survives a restart of the service, and for whom (case 43)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from proctor.sandbox.v1 import sandbox_service_pb2 as pb
from proctor.sandbox.v1 import sandbox_service_pb2_grpc as pb_grpc
from services.chassis.errors import from_rpc_error
from services.sandbox.bootstrap import build
from tests.support.platform import principal, test_platform
from tests.support.sandbox import needs_environment, sandbox_settings, short_folder, take_fonts
from tests.support.servers import Served, serve

pytestmark = needs_environment


@asynccontextmanager
async def service(folder: Path, **changes: object) -> AsyncIterator[Served]:
    platform = test_platform()
    settings = sandbox_settings(folder, **changes)  # type: ignore[arg-type]
    take_fonts(settings.state_dir / "fonts")
    built = await build(settings, platform)
    async with serve(built, platform=platform) as served:
        yield served


async def execute(served: Served, user: str = "ann", **fields: object) -> list[pb.ExecuteResponse]:
    stub = pb_grpc.SandboxServiceStub(served.channel)
    metadata = served.platform.signer.metadata(principal(user))
    return [event async for event in stub.Execute(pb.ExecuteRequest(**fields), metadata=metadata)]  # type: ignore[arg-type]


async def reason(served: Served, user: str = "ann", **fields: object) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await execute(served, user, **fields)
    return from_rpc_error(caught.value).reason


async def test_43_results_and_their_owner_survive_a_restart() -> None:
    code = "import os\nopen('made.bin', 'wb').write(os.urandom(600_000))\nprint(os.urandom(4).hex())"
    with short_folder() as folder:
        async with service(folder) as served:
            first = await execute(served, execution_id="e", code=code)
        async with service(folder) as served:
            again = await execute(served, execution_id="e", code=code)
            assert await reason(served, "bob", execution_id="e", code=code) == "EXECUTION_NOT_FOUND"
    assert again == first
    assert sum(len(event.artifact.data) for event in again) == 600_000


async def test_43_sessions_end_with_the_service_and_stay_foreign_to_others() -> None:
    with short_folder() as folder:
        async with service(folder) as served:
            stub = pb_grpc.SandboxServiceStub(served.channel)
            metadata = served.platform.signer.metadata(principal("ann"))
            session = (await stub.CreateSession(pb.CreateSessionRequest(), metadata=metadata)).session_id
            assert await reason(served, "bob", execution_id="1", code="1", session_id=session) == "SESSION_NOT_FOUND"
        async with service(folder) as served:
            assert await reason(served, execution_id="2", code="1", session_id=session) == "SESSION_NOT_FOUND"


async def test_an_execution_cut_by_a_crash_ends_once_and_is_not_run_again() -> None:
    code = "print('up', flush=True)\nimport time; time.sleep(60)"
    with short_folder() as folder:
        platform = test_platform()
        settings = sandbox_settings(folder)
        crashed = await build(settings, platform)
        async with serve(crashed, platform=platform) as served:
            task = asyncio.create_task(execute(served, execution_id="cut", code=code))
            await asyncio.sleep(0.5)
            database = folder / "sandbox.sqlite3"
            # What a killed process leaves: the row as it is now.
            copies = {file.name: file.read_bytes() for file in folder.glob(f"{database.name}*")}
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        for file in folder.glob(f"{database.name}*"):
            file.unlink()
        for name, content in copies.items():
            (folder / name).write_bytes(content)
        async with service(folder) as served:
            events = await execute(served, execution_id="cut", code=code)
    assert [event.WhichOneof("event") for event in events] == ["finished"]
    assert events[0].finished.status == pb.EXECUTION_STATUS_SANDBOX_ERROR
    assert "restarted" in events[0].finished.message


async def test_the_oldest_session_of_an_owner_gives_way() -> None:
    with short_folder() as folder:
        async with service(folder, sessions_per_owner=2) as served:
            stub = pb_grpc.SandboxServiceStub(served.channel)
            metadata = served.platform.signer.metadata(principal("ann"))
            made = [
                (await stub.CreateSession(pb.CreateSessionRequest(), metadata=metadata)).session_id for _ in range(3)
            ]
            assert await reason(served, execution_id="1", code="1", session_id=made[0]) == "SESSION_NOT_FOUND"
            for number, session in enumerate(made[1:]):
                await execute(served, execution_id=f"s{number}", code="1", session_id=session)


async def test_a_full_queue_is_refused_with_a_time_to_come_back() -> None:
    sleeping = "import time; print('up', flush=True); time.sleep(30)"
    with short_folder() as folder:
        async with service(folder, slots=1, max_waiting=1) as served:
            stub = pb_grpc.SandboxServiceStub(served.channel)
            metadata = served.platform.signer.metadata(principal("ann"))
            first = stub.Execute(pb.ExecuteRequest(execution_id="q0", code=sleeping), metadata=metadata)
            running = aiter(first)  # held: the call would end with its reader
            assert (await anext(running)).HasField("started")
            # One of these waits for the slot, the other finds the queue full.
            others = [asyncio.create_task(execute(served, execution_id=f"q{n}", code=sleeping)) for n in (1, 2)]
            (refused,), (waiting,) = await asyncio.wait(others, return_when=asyncio.FIRST_COMPLETED)
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                refused.result()
            failure = from_rpc_error(caught.value)
            first.cancel()
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
    assert (failure.code, failure.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "SANDBOX_BUSY")
    assert failure.retry_after

"""The sandbox through gRPC on a unix socket, with every interceptor."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import grpc
import pytest
import pytest_asyncio
from google.protobuf.duration_pb2 import Duration

from proctor.sandbox.v1 import sandbox_service_pb2 as pb
from proctor.sandbox.v1 import sandbox_service_pb2_grpc as pb_grpc
from services.chassis.errors import from_rpc_error
from services.sandbox.bootstrap import build
from services.sandbox.settings import Backend
from tests.support.platform import principal, test_platform
from tests.support.sandbox import needs_environment, sandbox_settings, short_folder
from tests.support.servers import Served, serve

pytestmark = [pytest.mark.asyncio(loop_scope="module"), needs_environment]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served() -> AsyncIterator[Served]:
    with short_folder() as folder:
        platform = test_platform()
        service = await build(sandbox_settings(folder, Backend.WARM, slots=2), platform)
        async with serve(service, platform=platform) as running:
            yield running


class Client:
    """Calls as one user."""

    def __init__(self, served: Served, user: str = "ann", tenant: str = "local") -> None:
        self.stub = pb_grpc.SandboxServiceStub(served.channel)
        self.metadata = served.platform.signer.metadata(principal(user, tenant))

    def execute(self, **fields: object) -> grpc.aio.UnaryStreamCall[pb.ExecuteRequest, pb.ExecuteResponse]:
        return self.stub.Execute(pb.ExecuteRequest(**fields), metadata=self.metadata)  # type: ignore[arg-type]

    async def run(self, **fields: object) -> list[pb.ExecuteResponse]:
        return [event async for event in self.execute(**fields)]


def stdout(events: list[pb.ExecuteResponse]) -> bytes:
    return b"".join(event.stdout.data for event in events if event.HasField("stdout"))


async def failure(call: object) -> tuple[grpc.StatusCode, str]:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        await call  # type: ignore[misc]
    found = from_rpc_error(caught.value)
    return found.code, found.reason


async def test_execute_streams_started_output_files_and_an_end(served: Served) -> None:
    code = "open('a.txt', 'w').write('hello')\nprint(open('in.csv').read())"
    files = [pb.InputFile(name="in.csv", content=b"x,y")]
    events = await Client(served).run(execution_id="e1", code=code, files=files)
    assert events[0].HasField("started")
    assert stdout(events) == b"x,y\n"
    artifact = next(event.artifact for event in events if event.HasField("artifact"))
    assert (artifact.name, artifact.data, artifact.last) == ("a.txt", b"hello", True)
    finished = events[-1].finished
    assert finished.status == pb.EXECUTION_STATUS_OK
    assert finished.message.startswith("OK after")


async def test_an_input_larger_than_the_suites_other_messages_arrives(served: Served) -> None:
    files = [pb.InputFile(name="big.bin", content=bytes(20 * 1024 * 1024))]
    code = "import os; print(os.path.getsize('big.bin'))"
    events = await Client(served).run(execution_id="big", code=code, files=files)
    assert stdout(events) == b"20971520\n"


async def test_a_repeated_execution_id_replays_and_never_runs_twice(served: Served) -> None:
    code = "import os; print(os.urandom(8).hex())"
    first = await Client(served).run(execution_id="e2", code=code)
    second = await Client(served).run(execution_id="e2", code=code)
    assert stdout(first) == stdout(second)
    assert [event.WhichOneof("event") for event in first] == [event.WhichOneof("event") for event in second]


async def test_a_second_caller_attaches_to_the_running_execution(served: Served) -> None:
    code = "import os, time; print(os.urandom(8).hex(), flush=True); time.sleep(0.5); print('end')"
    one, two = await asyncio.gather(
        Client(served).run(execution_id="e3", code=code), Client(served).run(execution_id="e3", code=code)
    )
    assert stdout(one) == stdout(two)
    assert stdout(one).endswith(b"end\n")


async def test_the_same_id_with_other_code_is_refused(served: Served) -> None:
    client = Client(served)
    await client.run(execution_id="e4", code="1")
    assert await failure(client.run(execution_id="e4", code="2")) == (
        grpc.StatusCode.ALREADY_EXISTS,
        "EXECUTION_ID_REUSED",
    )


async def test_another_users_execution_is_not_found(served: Served) -> None:
    await Client(served).run(execution_id="e5", code="print('secret')")
    other = Client(served, user="bob")
    assert await failure(other.run(execution_id="e5", code="print('secret')")) == (
        grpc.StatusCode.NOT_FOUND,
        "EXECUTION_NOT_FOUND",
    )


async def test_ids_are_unique_per_tenant_only(served: Served) -> None:
    await Client(served).run(execution_id="e6", code="print(1)")
    elsewhere = await Client(served, tenant="other").run(execution_id="e6", code="print(2)")
    assert stdout(elsewhere) == b"2\n"


async def test_limits_above_the_maximum_are_invalid(served: Served) -> None:
    limits = pb.Limits(wall=Duration(seconds=301))
    assert await failure(Client(served).run(execution_id="e7", code="1", limits=limits)) == (
        grpc.StatusCode.INVALID_ARGUMENT,
        "INVALID_REQUEST",
    )


@pytest.mark.parametrize("name", ["../up", "a/b", "a\\b", "new\nline", ".."])
async def test_input_names_that_are_not_plain_are_refused(served: Served, name: str) -> None:
    files = [pb.InputFile(name=name, content=b"")]
    code, _ = await failure(Client(served).run(execution_id=f"bad-{name.encode().hex()}", code="1", files=files))
    assert code == grpc.StatusCode.INVALID_ARGUMENT


async def test_a_wall_limit_ends_as_timeout_with_the_output_so_far(served: Served) -> None:
    limits = pb.Limits(wall=Duration(nanos=400_000_000))
    events = await Client(served).run(execution_id="e8", code="print('so far')\nwhile True: pass", limits=limits)
    assert stdout(events) == b"so far\n"
    assert events[-1].finished.status == pb.EXECUTION_STATUS_TIMEOUT
    assert events[-1].finished.message.startswith("TIMEOUT after 0.4 s")


async def test_cancelling_the_stream_kills_the_code_and_frees_the_slot(served: Served) -> None:
    client = Client(served)
    code = "print('up', flush=True)\nimport time\nwhile True: time.sleep(0.01)"
    calls = [client.execute(execution_id=f"cancel{n}", code=code) for n in range(2)]
    for call in calls:
        async for event in call:
            if event.HasField("stdout"):
                break
        call.cancel()
    # Both slots were taken; the next one runs only when they are free again.
    events = await asyncio.wait_for(client.run(execution_id="after", code="print('free')"), 5)
    assert stdout(events) == b"free\n"
    ended = await client.run(execution_id="cancel0", code=code)
    assert ended[-1].finished.status == pb.EXECUTION_STATUS_CANCELLED


async def test_isolation_is_reported_with_its_proofs(served: Served) -> None:
    client = Client(served)
    report = await client.stub.GetIsolation(pb.GetIsolationRequest(), metadata=client.metadata)
    assert report.safe
    assert report.backend == "bubblewrap-warm"
    assert {check.name for check in report.checks} >= {"bwrap_present", "no_network", "system_call_filter"}
    assert any(package.startswith("numpy ") for package in report.packages)


async def test_a_session_keeps_its_state(served: Served) -> None:
    client = Client(served)
    session = await client.stub.CreateSession(pb.CreateSessionRequest(), metadata=client.metadata)
    await client.run(execution_id="s1", code="x = 41", session_id=session.session_id)
    events = await client.run(execution_id="s2", code="x + 1", session_id=session.session_id)
    assert stdout(events) == b"42\n"
    await client.stub.CloseSession(pb.CloseSessionRequest(session_id=session.session_id), metadata=client.metadata)
    assert await failure(client.run(execution_id="s3", code="x", session_id=session.session_id)) == (
        grpc.StatusCode.NOT_FOUND,
        "SESSION_NOT_FOUND",
    )


async def test_another_users_session_is_not_found(served: Served) -> None:
    ann, bob = Client(served), Client(served, user="bob")
    session = await ann.stub.CreateSession(pb.CreateSessionRequest(), metadata=ann.metadata)
    assert await failure(bob.run(execution_id="s4", code="1", session_id=session.session_id)) == (
        grpc.StatusCode.NOT_FOUND,
        "SESSION_NOT_FOUND",
    )
    await bob.stub.CloseSession(pb.CloseSessionRequest(session_id=session.session_id), metadata=bob.metadata)
    events = await ann.run(execution_id="s5", code="print('alive')", session_id=session.session_id)
    assert stdout(events) == b"alive\n"

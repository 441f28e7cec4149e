"""The Python client over both transports, sync and async, before fakes that break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from proctor.agent.v1 import agent_pb2
from proctor.client import AsyncClient, Client, ConnectionLost, ProctorError, approve, deny, edit, skip, tool_result
from services.chassis.identity import Principal
from tests.support.fake_backends import Suite, gateway_suite
from tests.support.run_events import answer, approval_requested, completed, failed, paused, started

pytestmark = pytest.mark.asyncio(loop_scope="module")
ANN = Principal(tenant="local", user="local", scopes=frozenset({"*"}))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared() -> AsyncIterator[Suite]:
    async with gateway_suite() as running:
        yield running


@pytest.fixture
def suite(shared: Suite) -> Suite:
    return shared.forget()


class Both:
    """One interface over the two clients, so that each test runs with each."""

    def __init__(self, suite: Suite, address: str, *, blocking: bool, backoff: tuple[float, ...]) -> None:
        self.blocking = blocking
        options: dict[str, Any] = {"token": lambda: suite.platform.signer.mint(ANN), "backoff": backoff}
        self.client: Any = Client(address, **options) if blocking else AsyncClient(address, **options)

    async def read(self, run: Any) -> list[Any]:
        if self.blocking:
            return await asyncio.to_thread(lambda: list(run))
        return [event async for event in run]

    async def call(self, name: str, *arguments: Any, **options: Any) -> Any:
        method = getattr(self.client, name)
        if self.blocking:
            return await asyncio.to_thread(lambda: method(*arguments, **options))
        return await method(*arguments, **options)

    async def runs(self, **filters: Any) -> list[Any]:
        if self.blocking:
            return await asyncio.to_thread(lambda: list(self.client.runs(**filters)))
        return [run async for run in self.client.runs(**filters)]


@pytest_asyncio.fixture(loop_scope="module", params=["http-sync", "http-async", "grpc-sync", "grpc-async"])
async def proctor(suite: Suite, request: pytest.FixtureRequest) -> AsyncIterator[Both]:
    transport, _, style = request.param.partition("-")
    address = suite.url if transport == "http" else suite.targets["orchestrator_target"]
    both = Both(suite, address, blocking=style == "sync", backoff=(0.0,) * 4)
    try:
        yield both
    finally:
        await both.call("close")


async def test_a_run_is_asked_followed_and_folded(suite: Suite, proctor: Both) -> None:
    run = proctor.client.ask("How long?", agent="handbook", sampling=agent_pb2.Sampling(temperature=0))
    got = await proctor.read(run)
    assert [event.sequence for event in got] == list(range(1, 8))
    assert run.run_id == "run1"
    assert (run.answer.state, run.answer.text) == ("completed", "25 days a year [1].")
    assert run.answer.citations[0].evidence.title == "Leave"
    assert run.answer.usage.input_tokens == 12
    sent = suite.orchestrator.runs["run1"].request
    assert (sent.input[0].text, sent.agent_id, sent.sampling.HasField("temperature")) == ("How long?", "handbook", True)


@pytest.mark.parametrize("breaks", [[1], [2, 3], [4, 1, 1]])
async def test_a_lost_connection_is_taken_up_where_it_broke(suite: Suite, proctor: Both, breaks: list[int]) -> None:
    suite.orchestrator.breaks = list(breaks)
    got = await proctor.read(proctor.client.ask("x"))
    assert [event.sequence for event in got] == list(range(1, 8))
    assert len(suite.orchestrator.runs) == 1


async def test_a_run_is_watched_after_what_was_seen(suite: Suite, proctor: Both) -> None:
    whole = await proctor.read(proctor.client.ask("x"))
    assert await proctor.read(proctor.client.watch("run1", after=4)) == whole[4:]
    assert await proctor.read(proctor.client.watch("run1")) == whole


async def test_decisions_resume_a_pause(suite: Suite, proctor: Both) -> None:
    suite.orchestrator.script = [started(), approval_requested(), paused("call_1")]
    suite.orchestrator.after_resume = [answer("ok"), completed("ok")]
    run = proctor.client.ask("x", hold=0)
    await proctor.read(run)
    assert (run.answer.state, run.answer.pending[0].call_id) == ("paused", "call_1")
    decisions = [approve("call_1", remember="always"), deny("c2", "no"), edit("c3", {"n": 2**70}), skip("c4")]
    resumed = proctor.client.resume("run1", [*decisions, tool_result("c5", "out", failed=True)])
    got = await proctor.read(resumed)
    assert [event.WhichOneof("event") for event in got] == ["run_resumed", "answer_delta", "run_completed"]
    first, second, third, fourth, fifth = suite.orchestrator.resumes[0].decisions
    assert first.approval.approve.remember == 3
    assert second.approval.comment == "no"
    assert b"1180591620717411303424" in third.approval.edit.arguments_json
    assert fourth.answers.skipped
    assert (fifth.client_tool.result[0].text, fifth.client_tool.failed) == ("out", True)


async def test_failures_are_told_in_the_answer_and_refusals_raised(suite: Suite, proctor: Both) -> None:
    suite.orchestrator.script = [started(), answer("par"), failed("MODEL_TIMEOUT", "par")]
    run = proctor.client.ask("x")
    await proctor.read(run)
    assert (run.answer.state, run.answer.failure, run.answer.text) == ("failed", "MODEL_TIMEOUT", "par")
    with pytest.raises(ProctorError, match="none") as refused:
        await proctor.call("get", "none")
    assert refused.value.reason == "RUN_NOT_FOUND"
    suite.orchestrator.oldest = 5
    with pytest.raises(ProctorError) as pruned:
        await proctor.read(proctor.client.watch("run1", after=2))
    assert (pruned.value.reason, pruned.value.metadata) == ("EVENTS_PRUNED", {"oldest": "5"})


async def test_runs_are_listed_shown_and_cancelled(suite: Suite, proctor: Both) -> None:
    await proctor.read(proctor.client.ask("x"))
    suite.orchestrator.script = [started(), approval_requested(), paused("call_1")]
    await proctor.read(proctor.client.ask("y", hold=0))
    assert [run.run_id for run in await proctor.runs()] == ["run2", "run1"]
    await proctor.call("cancel", "run2")
    assert (await proctor.call("get", "run2")).state == 6


@pytest.mark.parametrize("address", ["http://127.0.0.1:9", "grpc://127.0.0.1:9"])
async def test_nobody_there_is_a_lost_connection(address: str) -> None:
    with Client(address, backoff=()) as client, pytest.raises(ConnectionLost):
        await asyncio.to_thread(client.ask("x").wait)
    async with AsyncClient(address, backoff=()) as client:
        with pytest.raises(ConnectionLost):
            await client.ask("x").wait()


async def test_a_gateway_that_is_replaced_under_its_reader_loses_nothing(suite: Suite) -> None:
    suite.orchestrator.script = [started(), answer("25 ")]
    draining = suite.gateway.parts.draining

    async def replaced(_: float) -> None:
        draining.clear()
        suite.orchestrator.runs["run1"].append(answer("days"), completed("25 days"))

    async with AsyncClient(suite.url, sleep=replaced) as client:
        run = client.ask("x")
        got = []
        async for event in run:
            got.append(event.sequence)
            if event.HasField("answer_delta") and len(got) == 2:
                draining.set()
    assert got == [1, 2, 3, 4]
    assert (run.answer.state, run.answer.text) == ("completed", "25 days")

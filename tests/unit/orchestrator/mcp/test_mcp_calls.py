"""Calls that outlive a leg, and questions that must not reach the wrong person; the session is a fake here."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any, cast

import pytest
from mcp_types import CallToolResult, TextContent
from opentelemetry.trace import NoOpTracer

from services.orchestrator.mcp.calls import MOST_KEPT, KeptCalls, OpenCall
from services.orchestrator.mcp.connection import Connection
from services.orchestrator.mcp.definitions import define
from services.orchestrator.mcp.ports import CallBroken, CallRefused, ListedTool
from services.orchestrator.mcp.results import Results
from services.orchestrator.mcp.session import Questioned, Session, current_call
from services.orchestrator.mcp.settings import Credentials, McpSettings, ServerSettings
from services.orchestrator.mcp.tool import McpTool
from services.orchestrator.tools.ports import Resumed, ToolContext, ToolResult
from tests.support.clock import SequentialIds
from tests.support.mcp_kit import ANN, MemoryFiles
from tests.support.waiting import until

SETTINGS = ServerSettings(name="desk", command="x")
LISTED = ListedTool(name="order", title="Order", description="d", parameters_json=b'{"type":"object"}')
COLOUR = {"message": "Which?", "requestedSchema": {"properties": {"colour": {"type": "string"}}}}
Work = Callable[[Questioned], Awaitable[CallToolResult]]


class FakeConnection:
    """A connection whose calls are a function."""

    def __init__(self, work: Work) -> None:
        self.settings = SETTINGS
        self._work = work

    async def call(
        self, name: str, arguments: Mapping[str, Any], progress: Any, caller: Questioned, **rest: Any
    ) -> Any:
        return await self._work(caller)


def tool(work: Work, kept: KeptCalls) -> McpTool:
    connection = cast("Connection", FakeConnection(work))
    definition = define(LISTED, SETTINGS, McpSettings())
    return McpTool(definition, LISTED, connection, results=Results(MemoryFiles()), kept=kept, tracer=NoOpTracer())


async def run(mine: McpTool, resumed: Resumed | None = None) -> ToolResult:
    context = ToolContext(
        run_id="r", call_id="c", key="k", principal=ANN, conversation_id="", sources=(),
        progress=lambda stream, text, fraction=None: None, resumed=resumed,
    )  # fmt: skip
    return await mine.run({}, context)


def text(said: str) -> CallToolResult:
    return CallToolResult(content=[TextContent(text=said)])


async def asks(caller: Questioned) -> CallToolResult:
    """Ask for a colour and tell it."""
    return text(json.dumps(await caller.ask(COLOUR)))


async def test_a_call_kept_open_goes_on_with_the_answer_and_is_forgotten() -> None:
    kept = KeptCalls(SequentialIds())
    mine = tool(asks, kept)

    paused = await run(mine)
    assert paused.questions is not None
    answered = await run(mine, Resumed(state=paused.questions.state, answers={"colour": "red"}))
    again = await run(mine, Resumed(state=paused.questions.state, answers={"colour": "blue"}))

    assert json.loads(answered.text) == {"action": "accept", "content": {"colour": "red"}}
    assert again.unknown  # the state of a run that was resumed twice, or in another process
    assert "whether it took effect is unknown" in again.text


async def test_a_call_that_nobody_comes_back_for_is_stopped() -> None:
    stopped = asyncio.Event()

    async def works(caller: Questioned) -> CallToolResult:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()
        raise AssertionError

    kept = KeptCalls(SequentialIds())
    call = OpenCall(lambda *told: None)
    call.begin(works(call))
    await asyncio.sleep(0)
    token = kept.keep(call, timedelta())
    await until(stopped.is_set)

    assert kept.take(token) is None


async def test_a_call_whose_run_is_stopped_is_let_go() -> None:
    stopped = asyncio.Event()

    async def waits(caller: Questioned) -> CallToolResult:
        try:
            return await asks(caller)
        finally:
            stopped.set()

    mine = tool(waits, KeptCalls(SequentialIds()))
    paused = await run(mine)
    assert paused.questions is not None

    await mine.abandon(paused.questions.state)

    assert stopped.is_set()


async def test_there_is_an_end_to_what_is_kept_open_and_then_a_question_is_cancelled() -> None:
    kept = KeptCalls(SequentialIds())
    calls = [OpenCall(lambda *told: None) for _ in range(MOST_KEPT)]
    assert all(kept.keep(call, timedelta(hours=1)) for call in calls)

    result = await run(tool(asks, kept))

    assert json.loads(result.text) == {"action": "cancel"}
    await kept.close()


async def test_a_server_that_asks_on_and_on_is_stopped() -> None:
    async def insists(caller: Questioned) -> CallToolResult:
        while True:
            await caller.ask({"message": "?", "requestedSchema": {"properties": {"f": {"type": "object"}}}})

    result = await run(tool(insists, KeptCalls(SequentialIds())))

    assert result.failed
    assert "it asked more than 10 times" in result.text


@pytest.mark.parametrize(
    ("error", "unknown", "words"),
    [
        (CallBroken(), True, "it was not repeated"),
        (CallRefused("no such ticket"), False, "refused the call: no such ticket"),
    ],
)
async def test_a_broken_call_and_a_refused_one_are_told_apart(error: Exception, unknown: bool, words: str) -> None:
    async def fails(caller: Questioned) -> CallToolResult:
        raise error

    result = await run(tool(fails, KeptCalls(SequentialIds())))

    assert (result.failed, result.unknown) == (True, unknown)
    assert words in result.text


class Listener:
    """A call that takes questions."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, Any]] = []

    async def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        self.asked.append(request)
        return {"action": "accept", "content": {}}


async def test_a_question_that_could_be_of_several_calls_is_shown_to_nobody() -> None:
    from mcp_types import ElicitRequestFormParams

    session = Session(SETTINGS, Credentials(), lambda listing: None)
    params = ElicitRequestFormParams(message="Whose?", requested_schema={})
    ann, bob = Listener(), Listener()

    session.open_calls = {ann, bob}
    ambiguous = await session._elicit(cast("Any", None), params)
    session.open_calls = {ann}
    single = await session._elicit(cast("Any", None), params)
    session.open_calls = {ann, bob}
    current_call.set(bob)
    known = await session._elicit(cast("Any", None), params)

    assert [each.action for each in (ambiguous, single, known)] == ["cancel", "accept", "accept"]
    assert (len(ann.asked), len(bob.asked)) == (1, 1)

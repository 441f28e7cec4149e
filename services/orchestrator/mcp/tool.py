"""A server's tool behind the port of tools."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import timedelta
from typing import Any

from mcp_types import CallToolResult, ElicitRequest, ElicitResult, InputRequiredResult, InputResponses
from opentelemetry.trace import SpanKind, StatusCode, Tracer

from services.chassis import names
from services.chassis.canonical import canonical_json
from services.orchestrator.domain.events import ProgressStream
from services.orchestrator.mcp.calls import KeptCalls, OpenCall, Question
from services.orchestrator.mcp.connection import Connection
from services.orchestrator.mcp.ports import CallBroken, CallRefused, ListedTool, Progress
from services.orchestrator.mcp.questions import Asked, Unaskable, questions_of, replies_to
from services.orchestrator.mcp.results import Results
from services.orchestrator.mcp.session import elicitation
from services.orchestrator.tools.ports import (
    Effect,
    ToolContext,
    ToolDefinition,
    ToolQuestions,
    ToolResult,
)

# Questions of one call; a server that asks on and on is stopped.
MOST_ROUNDS = 10
# A kept call outlives the deadline of its question by this, so that the last answer still finds it.
SLACK = timedelta(seconds=30)
_WORDS_LIMIT = 500


class McpTool:
    """One tool of one server, for one tenant."""

    def __init__(
        self,
        definition: ToolDefinition,
        tool: ListedTool,
        connection: Connection,
        *,
        results: Results,
        kept: KeptCalls,
        tracer: Tracer,
    ) -> None:
        self._definition = definition
        self._tool = tool
        self._connection = connection
        self._results = results
        self._kept = kept
        self._tracer = tracer

    @property
    def definition(self) -> ToolDefinition:
        """What the gate knows of it."""
        return self._definition

    async def run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        """Call the server, or go on with a call that had asked the user something."""
        server = self._connection.settings.name
        with self._tracer.start_as_current_span(
            f"{names.SPAN_MCP_CALL} {self._tool.name}",
            kind=SpanKind.CLIENT,
            attributes={
                names.MCP_METHOD_NAME: names.SPAN_MCP_CALL,
                names.GEN_AI_TOOL_NAME: self._tool.name,
                names.MCP_SERVER: server,
            },
            record_exception=False,
        ) as span:
            try:
                result = await self._run(arguments, context)
            except CallBroken:
                span.set_status(StatusCode.ERROR, "connection broke")
                return self._broken()
            except CallRefused as error:
                span.set_status(StatusCode.ERROR, "refused")
                return ToolResult(text=f"server '{server}' refused the call: {str(error)[:_WORDS_LIMIT]}", failed=True)
            if result.failed:
                span.set_status(StatusCode.ERROR)
            return result

    async def abandon(self, state: bytes) -> None:
        """Stop a call that is kept open; one whose state is with the run has nothing open."""
        kept = self._kept.take(json.loads(state).get("token", ""))
        if kept is not None:
            await kept.stop()

    async def _run(self, arguments: Mapping[str, Any], context: ToolContext) -> ToolResult:
        call = OpenCall(_progress_of(context))
        if context.resumed is None:
            self._send(call, arguments)
            return await self._advance(call, arguments, context, 0)
        saved = json.loads(context.resumed.state)
        replies = replies_to(Asked(server=saved["server"], requests=saved["requests"]), context.resumed.answers)
        if "token" in saved:
            kept = self._kept.take(saved["token"])
            if kept is None:
                return self._broken()
            kept.progress = _progress_of(context)
            kept.answer(replies[""])
            return await self._advance(kept, arguments, context, saved["round"])
        self._send(call, arguments, saved["request_state"], _responses(replies))
        return await self._advance(call, arguments, context, saved["round"])

    def _send(
        self,
        call: OpenCall,
        arguments: Mapping[str, Any],
        state: str | None = None,
        responses: InputResponses | None = None,
    ) -> None:
        call.begin(self._connection.call(self._tool.name, arguments, call.tell, call, state=state, responses=responses))

    async def _advance(
        self, call: OpenCall, arguments: Mapping[str, Any], context: ToolContext, rounds: int
    ) -> ToolResult:
        """Wait for the outcome, or for a question: then the call is put aside until the user has answered."""
        keeping = False
        try:
            while True:
                step = await call.next()
                if isinstance(step, CallToolResult):
                    server = self._connection.settings.name
                    return await self._results.make(step, server, context.principal, context.run_id)
                rounds += 1
                asked, unanswerable = self._asked(step, context, rounds)
                if not unanswerable:
                    paused = self._pause(call, step, asked, rounds)
                    if paused is not None:
                        keeping = isinstance(step, Question)
                        return paused
                if rounds > MOST_ROUNDS:
                    raise CallRefused(f"it asked more than {MOST_ROUNDS} times")
                self._decline(call, step, asked, arguments)
        finally:
            if not keeping:
                await call.stop()

    def _asked(self, step: Question | InputRequiredResult, context: ToolContext, rounds: int) -> tuple[Asked, bool]:
        """Return what is asked, and whether nobody can be asked it."""
        server = self._connection.settings.name
        if isinstance(step, Question):
            requests: dict[str, Any] = {"": step.request}
        else:
            wanted = step.input_requests or {}
            if others := [key for key, each in wanted.items() if not isinstance(each, ElicitRequest)]:
                raise CallRefused(f"it wants something that is not offered to servers ({', '.join(others)[:100]})")
            requests = {
                key: elicitation(each.params) for key, each in wanted.items() if isinstance(each, ElicitRequest)
            }
        asked = Asked(server=server, requests=requests)
        allowed = context.answerable and self._connection.settings.asks_questions and rounds <= MOST_ROUNDS
        return asked, not allowed or not requests

    def _pause(
        self, call: OpenCall, step: Question | InputRequiredResult, asked: Asked, rounds: int
    ) -> ToolResult | None:
        """Return the result that makes the run ask the user; None when these questions cannot be asked."""
        try:
            questions = questions_of(asked)
        except Unaskable:
            return None
        answer_time = self._connection.settings.answer_time
        saved: dict[str, Any] = {"server": asked.server, "requests": dict(asked.requests), "round": rounds}
        if isinstance(step, Question):
            # The server holds the call open, so it can go on only in this process.
            saved["token"] = self._kept.keep(call, answer_time + SLACK)
            if not saved["token"]:
                return None
        else:
            saved["request_state"] = step.request_state
        return ToolResult(
            text="",
            questions=ToolQuestions(
                questions_json=canonical_json(questions), state=canonical_json(saved), answer_time=answer_time
            ),
        )

    def _decline(
        self, call: OpenCall, step: Question | InputRequiredResult, asked: Asked, arguments: Mapping[str, Any]
    ) -> None:
        """Tell the server that nobody answers, and go on."""
        replies = replies_to(asked, None)
        if isinstance(step, Question):
            call.answer(replies[""])
        else:
            self._send(call, arguments, step.request_state, _responses(replies))

    def _broken(self) -> ToolResult:
        server = self._connection.settings.name
        text = f"The connection to server '{server}' ended while '{self._definition.name}' worked"
        if self._definition.effect is Effect.READ:
            return ToolResult(text=f"{text}; call it again if you need it.", failed=True)
        return ToolResult(
            text=(
                f"{text}: whether it took effect is unknown, and it was not repeated. Tell the user so, and how they "
                "can check it."
            ),
            failed=True,
            unknown=True,
        )


def _responses(replies: Mapping[str, Mapping[str, Any]]) -> InputResponses:
    return {key: ElicitResult.model_validate(reply) for key, reply in replies.items()}


def _progress_of(context: ToolContext) -> Progress:
    def show(done: float, total: float | None, words: str) -> None:
        fraction = min(max(done / total, 0.0), 1.0) if total else None
        text = words[:_WORDS_LIMIT] or (f"{done:g} of {total:g}" if total else f"{done:g}")
        context.progress(ProgressStream.TEXT, f"{text}\n", fraction)

    return show

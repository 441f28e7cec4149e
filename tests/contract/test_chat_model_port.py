"""What every `ChatModel` keeps to, whatever stands behind it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from services.orchestrator.domain.run import OnRetraction
from services.orchestrator.models.ports import CallPiece, ChatModel, ModelReply, ModelRequest, TextPiece, ThinkingPiece
from tests.support.upstream import Upstream
from tests.support.upstream_composed import composed
from tests.support.upstream_models import SEARCH, Heard, ask, hear
from tests.support.upstream_script import Say, Think, Turn, call, say

KINDS = ("chat", "responses", "prompted", "reader")
ANSWER = Turn(steps=(Think(pieces=("Hm.",)), Say(pieces=("One ", "two ", "three"))))
CALL = {
    "chat": call("search", '{"reason": "To see.", "query": "x"}'),
    "responses": call("search", '{"reason": "To see.", "query": "x"}'),
    "prompted": say('```json\n{"tool": "search", "arguments": {"reason": "To see.", "query": "x"}}\n```'),
    "reader": say(),
}


@asynccontextmanager
async def model_of(kind: str, tmp_path: Path, *turns: Turn) -> AsyncIterator[ChatModel]:
    """A composed model of one kind, called `m`; the scripted server says `turns`."""
    async with Upstream(*turns) as upstream:
        api = "chat" if kind == "prompted" else kind
        capabilities = "[]" if kind == "prompted" else '["tools"]'
        toml = f'[models.m]\napi = "{api}"\nbase_url = "{upstream.base_url}"\ncapabilities = {capabilities}\n'
        async with composed(tmp_path, toml) as models:
            yield models.chat


async def told(kind: str, tmp_path: Path, turn: Turn, request: ModelRequest) -> Heard:
    async with model_of(kind, tmp_path, turn) as model:
        return await hear(model.stream(request))


@pytest.mark.parametrize("policy", list(OnRetraction))
@pytest.mark.parametrize("kind", KINDS)
async def test_the_pieces_are_the_reply_and_the_reply_comes_last_and_once(
    kind: str, policy: OnRetraction, tmp_path: Path
) -> None:
    heard = await told(kind, tmp_path, ANSWER, ask("hello", on_retraction=policy))
    assert heard.text == heard.reply.text != ""
    assert heard.thinking == heard.reply.reasoning
    assert heard.reply.finish_reason == "stop"
    assert all(event.text for event in heard.events if isinstance(event, TextPiece | ThinkingPiece))


@pytest.mark.parametrize("kind", KINDS)
async def test_a_call_has_canonical_arguments_a_reason_and_one_id(kind: str, tmp_path: Path) -> None:
    heard = await told(kind, tmp_path, CALL[kind], ask("x", tools=(SEARCH,)))
    (made,) = heard.reply.tool_calls
    assert made.arguments_json == b'{"query":"x"}'
    assert made.reason
    assert {event.call_id for event in heard.events if isinstance(event, CallPiece)} == {made.call_id}
    assert heard.reply.finish_reason == "tool_calls"
    assert heard.reply.text == ""


@pytest.mark.parametrize("kind", KINDS)
async def test_the_clock_and_the_usage_are_told(kind: str, tmp_path: Path) -> None:
    reply = (await told(kind, tmp_path, ANSWER, ask("hello"))).reply
    assert reply.timing.attempts == 1
    assert reply.timing.time_to_first_token is not None
    assert reply.timing.time_to_first_token <= reply.timing.total
    assert reply.usage.total_tokens > 0
    assert reply.model == ("reader" if kind == "reader" else "m")


@pytest.mark.parametrize("kind", KINDS)
async def test_the_same_request_gives_its_calls_the_same_ids(kind: str, tmp_path: Path) -> None:
    request = ask("x", tools=(SEARCH,))
    first = await told(kind, tmp_path, CALL[kind], request)
    again = await told(kind, tmp_path, CALL[kind], request)
    assert first.reply.tool_calls == again.reply.tool_calls


@pytest.mark.parametrize("kind", KINDS)
async def test_a_stream_that_is_closed_early_ends_quietly(kind: str, tmp_path: Path) -> None:
    async with (
        model_of(kind, tmp_path, ANSWER) as model,
        aclosing(model.stream(ask("hello"))) as events,
    ):
        first = await anext(events)
    assert not isinstance(first, ModelReply)

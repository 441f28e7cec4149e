"""Tools for models without function calling."""

from __future__ import annotations

from typing import Any

import pytest

from services.orchestrator.domain.messages import Message, Role, TextPart, ToolCall
from services.orchestrator.models.ports import TextPiece
from services.orchestrator.models.prompted import PromptedTools
from tests.support.upstream import Upstream
from tests.support.upstream_models import CLOCK_TOOL, SEARCH, Heard, adapter, ask, converse, system, user
from tests.support.upstream_script import Reasoning, Say, Think, Turn, say

TOOLS = (SEARCH, CLOCK_TOOL)


async def reply_to(turn: Turn, **fields: Any) -> tuple[Heard, list[dict[str, object]]]:
    """Return what the prompted model tells when the server says `turn`, and the messages the server was sent."""
    async with Upstream(turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(PromptedTools(model), ask(**{"tools": TOOLS, **fields}))
        assert "tools" not in upstream.requests[0].body
        return heard, upstream.requests[0].messages


@pytest.mark.parametrize(
    "written",
    [
        '```json\n{"tool": "search", "arguments": {"query": "travel"}}\n```',
        '```\n{"tool": "search", "arguments": {"query": "travel"}}\n```',
        '{"tool": "search", "arguments": {"query": "travel"}}',
        '{"name": "search", "parameters": {"query": "travel"}}',
        "{'tool': 'search', 'arguments': {'query': 'travel'}}",
        '{"tool": "search", "arguments": {"query": "travel"',
        '{"tool": "search", "arguments": {"query": "travel",},}',
        'I will look that up.\n\n```json\n{"tool": "search", "arguments": {"query": "travel"}}\n```\nOne moment.',
        'Let me see: {"tool": "search", "arguments": {"query": "travel"}}',
        '<tool_call>\n{"name": "search", "arguments": {"query": "travel"}}\n</tool_call>',
        '[{"tool": "search", "arguments": {"query": "travel"}}]',
        '{"tool_calls": [{"type": "function", "function": {"name": "search", "arguments": {"query": "travel"}}}]}',
        '{"name": "search", "arguments": "{\\"query\\": \\"travel\\"}"}',
    ],
)
@pytest.mark.parametrize("size", [1, 7, 1000])
async def test_a_call_is_read_however_it_is_written(written: str, size: int) -> None:
    pieces = [written[start : start + size] for start in range(0, len(written), size)]
    heard, _ = await reply_to(say(*pieces))
    assert [made.name for made in heard.reply.tool_calls] == ["search"]
    assert heard.arguments() == [{"query": "travel"}]
    assert heard.reply.finish_reason == "tool_calls"
    assert "{" not in heard.text
    assert heard.text.rstrip() == heard.reply.text


@pytest.mark.parametrize(
    "written",
    [
        "Plain words with [1] a citation, `code`, a < b and {braces}.",
        'The setting is {"name": "Ann", "age": 3} in the file.',
        '```json\n{"colour": "red"}\n```',
        '```python\nprint({"tool": 1})\n```',
        '{"tool": 7}',
        '{"name": "delete_everything", "arguments": {}}',
        "[1] says so, [2](http://x) too. [",
        "A tail of ``",
        "<tool",
    ],
)
@pytest.mark.parametrize("size", [1, 5, 1000])
async def test_an_ordinary_answer_is_delivered_once_as_text(written: str, size: int) -> None:
    pieces = [written[start : start + size] for start in range(0, len(written), size)]
    heard, _ = await reply_to(say(*pieces))
    assert heard.text == heard.reply.text == written
    assert heard.reply.tool_calls == ()


async def test_text_without_a_possible_call_streams_as_it_comes() -> None:
    heard, _ = await reply_to(say("One [1]. ", "Two."))
    assert heard.of(TextPiece)[0] == TextPiece(text="One [1]. ") or len(heard.of(TextPiece)) == 1


async def test_json_inside_reasoning_is_no_call() -> None:
    thought = Think(pieces=('{"tool": "search", "arguments": {"query": "x"}}',), form=Reasoning.THINK_TAG)
    heard, _ = await reply_to(Turn(steps=(thought, Say(pieces=("No need.",)))))
    assert heard.reply.tool_calls == ()
    assert heard.reply.text == "No need."


async def test_an_invented_tool_under_the_key_tool_is_a_call_that_can_be_refused() -> None:
    heard, _ = await reply_to(say('{"tool": "serach", "arguments": {"query": "x"}}'))
    assert [made.name for made in heard.reply.tool_calls] == ["serach"]


async def test_two_fences_are_two_calls_with_different_ids() -> None:
    one = '```json\n{"tool": "search", "arguments": {"query": "a"}}\n```'
    heard, _ = await reply_to(say(one, "\n", one.replace('"a"', '"b"')))
    assert heard.arguments() == [{"query": "a"}, {"query": "b"}]
    assert len({made.call_id for made in heard.reply.tool_calls}) == 2


async def test_the_reason_is_taken_out_wherever_it_stands() -> None:
    heard, _ = await reply_to(say('{"tool": "search", "reason": "To know.", "arguments": {"query": "x"}}'))
    assert heard.arguments() == [{"query": "x"}]
    assert heard.reply.tool_calls[0].reason == "To know."


async def test_the_tools_stand_in_the_prompt_and_a_second_tool_sees_the_first_one_s_result() -> None:
    made = ToolCall(call_id="c1", name="search", arguments_json=b'{"query":"x"}', reason="To know.")
    result = Message(role=Role.TOOL, parts=(TextPart(text="found: 42"),), tool_call_id="c1", tool_name="search")
    messages = (system("Be brief."), user("Find x"), Message(role=Role.ASSISTANT, tool_calls=(made,)), result)
    _, sent = await reply_to(say("42"), messages=messages)
    assert [message["role"] for message in sent] == ["system", "user", "assistant", "user"]
    assert "- search: Search the documents." in str(sent[0]["content"])
    assert '"reason": "To know."' in str(sent[2]["content"])
    assert "found: 42" in str(sent[3]["content"])


async def test_without_tools_the_history_is_still_readable_and_nothing_is_a_call() -> None:
    made = ToolCall(call_id="c1", name="search", arguments_json=b'{"query":"x"}')
    result = Message(role=Role.TOOL, parts=(TextPart(text="found"),), tool_call_id="c1", tool_name="search")
    messages = (user("Find x"), Message(role=Role.ASSISTANT, tool_calls=(made,)), result)
    heard, sent = await reply_to(say('{"tool": "search", "arguments": {}}'), messages=messages, tools=())
    assert heard.reply.tool_calls == ()
    assert "You can use tools" not in str(sent)

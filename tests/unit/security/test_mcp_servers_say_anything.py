"""Whatever an MCP server lists, returns or asks, in messages that its protocol allows: it is taken or refused."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import strategies as st
from mcp_types import CallToolResult, Tool
from pydantic import ValidationError

from services.orchestrator.mcp.listing import _usable
from services.orchestrator.mcp.questions import Asked, Unaskable, questions_of, replies_to
from services.orchestrator.mcp.results import Results
from tests.support.hostile import WRONG, shaped, taking_anything
from tests.support.mcp_kit import ANN, MemoryFiles

WORD = st.sampled_from(["a", "b\u202e", "../x", "\x1b[31m", "日本", "x" * 300, "Yes", ""])
SCHEMA = st.recursive(
    WRONG,
    lambda inner: shaped(
        {
            "type": st.sampled_from(["object", "string", "number", "integer", "boolean", "array", "null"]),
            "properties": st.dictionaries(WORD, inner, max_size=3),
            "required": st.lists(WORD, max_size=2),
            "enum": st.lists(WORD, max_size=3),
            "enumNames": st.lists(WORD, max_size=3),
            "oneOf": st.lists(shaped({"const": WORD, "title": WORD}) | WRONG, max_size=2),
            "anyOf": st.lists(inner, max_size=2),
            "items": inner,
            "minimum": st.integers(),
            "default": WRONG,
            "title": WORD,
            "description": WORD,
            "format": WORD,
            "$ref": st.sampled_from(["#", "#/properties/a", "http://x/y"]),
            "pattern": st.sampled_from(["(", "a+", "(a+)+$"]),
        }
    ),
    max_leaves=8,
)
TOOL = shaped(
    {
        "name": WORD,
        "title": WORD,
        "description": WORD,
        "inputSchema": SCHEMA,
        "outputSchema": SCHEMA,
        "annotations": shaped({"title": WORD, "readOnlyHint": st.booleans(), "idempotentHint": st.booleans()}),
    }
)
BLOCK = shaped(
    {
        "type": st.sampled_from(["text", "image", "audio", "resource", "resource_link"]),
        "text": WORD,
        "data": st.sampled_from(["aGk=", "????", "a" * 50]),
        "mimeType": st.sampled_from(["image/png", "text/plain", "x", "a/b;c=\n", ""]),
        "uri": st.sampled_from(["file:///a/../b?x", "http://[", "x"]),
        "name": WORD,
        "resource": shaped({"uri": WORD, "text": WORD, "blob": st.sampled_from(["aGk=", "?"]), "mimeType": WORD}),
    }
)
RESULT = st.fixed_dictionaries(
    {"content": st.lists(BLOCK, max_size=3)},
    optional={"structuredContent": st.dictionaries(WORD, WRONG, max_size=2), "isError": st.booleans()},
)
REQUESTS = st.dictionaries(
    WORD, shaped({"message": WORD, "requestedSchema": SCHEMA, "url": st.sampled_from(["http://[", "http://x/", "x"])})
)


def listing(tools: list[dict[str, Any]]) -> None:
    found = []
    for tool in tools:
        with suppress(ValidationError):
            found.append(Tool.model_validate(tool))
    usable, left_out = _usable(found)
    assert len(usable) + len(left_out) == len(found)
    assert all("\x1b" not in tool.description for tool in usable)


def result(returned: dict[str, Any]) -> None:
    try:
        told = CallToolResult.model_validate(returned)
    except ValidationError:
        return
    made = asyncio.run(Results(MemoryFiles()).make(told, "desk", ANN, "r1"))
    assert made.text


def answer_to(question: dict[str, Any]) -> Any:
    match question["type"]:
        case "number":
            return 1
        case "multiple_choice":
            return question["options"][:1]
    return (question.get("options") or ["text"])[0]


def asking(requests: dict[str, Any]) -> None:
    asked = Asked(server="desk", requests=requests)
    try:
        questions = questions_of(asked)
    except Unaskable:
        return
    answers = {question["question_id"]: answer_to(question) for question in questions}
    for given in (None, {}, answers):
        assert set(replies_to(asked, given)) == set(requests)


TARGETS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "list of tools": (st.lists(TOOL, max_size=3), listing),
    "result of a call": (RESULT, result),
    "questions": (REQUESTS, asking),
}


@pytest.mark.parametrize("name", TARGETS)
def test_whatever_a_server_says_is_taken_or_refused(name: str) -> None:
    inputs, target = TARGETS[name]
    taking_anything(inputs, target, 60, known=True)


@pytest.mark.prove
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_new_that_a_server_says_breaks_us(name: str) -> None:
    inputs, target = TARGETS[name]
    taking_anything(inputs, target, 1000, known=False)

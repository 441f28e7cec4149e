"""Properties: the raw parser reads what the stock client reads, and calls survive any way of cutting them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from itertools import pairwise
from typing import Any

import openai
from hypothesis import given, settings
from hypothesis import strategies as st
from openai._streaming import SSEDecoder

from services.orchestrator.models.fragments import CallAssembler
from services.orchestrator.models.sse import EventSplitter
from services.orchestrator.models.think import ThinkSplitter
from tests.support.upstream import Upstream
from tests.support.upstream_framing import call_deltas, pieces_of
from tests.support.upstream_models import SEARCH, adapter, ask, converse
from tests.support.upstream_script import CallFraming, Calls, Say, ScriptedCall, Turn, Wire, call

# A busy machine is no failure.
unhurried = settings(deadline=None)

PAYLOADS = st.lists(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\r\n\0"), min_size=1, max_size=30), max_size=8
)
NEWLINES = st.sampled_from([b"\n", b"\r\n", b"\r"])
JSON_OBJECTS = st.dictionaries(
    st.text(max_size=5),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=8),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=6,
    ),
    max_size=4,
)


def cut(content: bytes, cuts: Sequence[int]) -> list[bytes]:
    """Cut `content` at the given places, modulo its length."""
    places = sorted({place % (len(content) + 1) for place in cuts} | {0, len(content)})
    return [content[start:end] for start, end in pairwise(places)]


def stock(pieces: Sequence[bytes]) -> list[str]:
    """Return the data of events as the stock client's decoder reads them."""
    return [event.data for event in SSEDecoder().iter_bytes(iter(pieces)) if event.data]


def ours(pieces: Sequence[bytes]) -> list[str]:
    splitter = EventSplitter()
    found = [payload for piece in pieces for payload in splitter.feed(piece)]
    return [payload.decode() for payload in found + splitter.finish()]


@unhurried
@given(PAYLOADS, NEWLINES, st.lists(st.integers(0, 10_000), max_size=20), st.booleans())
def test_events_are_what_the_stock_decoder_reads_wherever_they_are_cut(
    payloads: list[str], newline: bytes, cuts: list[int], comments: bool
) -> None:
    noise = b": keep-alive" + newline * 2 if comments else b""
    body = b"".join(noise + b"event: e" + newline + b"data: " + p.encode() + newline * 2 for p in payloads)
    pieces = cut(body, cuts)
    assert ours(pieces) == stock([body])


@unhurried
@given(st.binary(max_size=200), st.lists(st.integers(0, 10_000), max_size=10))
def test_any_bytes_give_the_same_events_however_they_are_cut(content: bytes, cuts: list[int]) -> None:
    splitter = EventSplitter()
    at_once = splitter.feed(content) + splitter.finish()
    again = EventSplitter()
    in_pieces = [payload for piece in cut(content, cuts) for payload in again.feed(piece)] + again.finish()
    assert in_pieces == at_once


@unhurried
@given(JSON_OBJECTS, st.sampled_from(CallFraming))
def test_a_call_survives_every_framing(arguments: dict[str, Any], framing: CallFraming) -> None:
    arguments.pop("reason", None)
    text = json.dumps(arguments)
    assembler = CallAssembler("mc1", 1, {})
    step = Calls(calls=(ScriptedCall(name="tool", arguments=text, call_id="c1"),), framing=framing)
    for deltas in call_deltas(step):
        assembler.feed(deltas)
    (made,) = assembler.finish()
    assert json.loads(made.arguments_json) == arguments


@unhurried
@given(JSON_OBJECTS, st.integers(1, 12))
def test_arguments_are_whole_however_finely_they_are_cut(arguments: dict[str, Any], count: int) -> None:
    arguments.pop("reason", None)
    assembler = CallAssembler("mc1", 1, {})
    assembler.feed([{"index": 0, "id": "c", "function": {"name": "tool", "arguments": ""}}])
    shown = ""
    for piece in pieces_of(json.dumps(arguments), count):
        for fragment in assembler.feed([{"index": 0, "function": {"arguments": piece}}]):
            shown += fragment.arguments_fragment
    (made,) = assembler.finish()
    assert json.loads(made.arguments_json) == json.loads(shown) == arguments


JUNK = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: st.dictionaries(st.sampled_from(["index", "id", "function", "name", "arguments", "x"]), inner),
)


@unhurried
@given(st.lists(JUNK, max_size=4))
def test_what_is_no_fragment_never_raises(deltas: list[Any]) -> None:
    assembler = CallAssembler("mc1", 1, {})
    assembler.feed(deltas)
    assembler.finish()


@unhurried
@given(st.text(alphabet="<>/think ab\n", max_size=40), st.lists(st.integers(0, 100), max_size=8))
def test_thinking_is_split_the_same_wherever_the_text_is_cut(text: str, cuts: list[int]) -> None:
    assert split(cut_text(text, cuts)) == split([text])


def cut_text(text: str, cuts: Sequence[int]) -> list[str]:
    places = sorted({place % (len(text) + 1) for place in cuts} | {0, len(text)})
    return [text[start:end] for start, end in pairwise(places)]


def split(pieces: Sequence[str]) -> tuple[str, str]:
    splitter = ThinkSplitter()
    parts = [splitter.feed(piece) for piece in pieces] + [splitter.finish()]
    return "".join(thinking for thinking, _ in parts), "".join(text for _, text in parts)


async def stock_reply(base_url: str) -> tuple[str, list[tuple[str, str]]]:
    """Return text and calls as the stock client streams them."""
    text, calls = "", dict[int, list[str]]()
    client = openai.AsyncOpenAI(base_url=base_url, api_key="k", max_retries=0)
    stream: AsyncIterator[Any] = await client.chat.completions.create(
        model="scripted", messages=[{"role": "user", "content": "x"}], stream=True
    )
    async for chunk in stream:
        for choice in chunk.choices:
            text += choice.delta.content or ""
            for delta in choice.delta.tool_calls or ():
                made = calls.setdefault(delta.index, ["", ""])
                made[0] += delta.function.name or ""
                made[1] += delta.function.arguments or ""
    await client.close()
    return text, [(name, arguments) for name, arguments in calls.values()]


@settings(max_examples=15, deadline=None)
@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12), min_size=1, max_size=6))
async def test_the_adapter_reads_a_stream_as_the_stock_client_does(pieces: list[str]) -> None:
    # A tag at the start of an answer is thinking to us and text to the stock client.
    pieces = ["·", *pieces]
    turn = Turn(steps=(Say(pieces=tuple(pieces)),), wire=Wire(slice_bytes=5, newline=b"\r\n", comments=True))
    async with Upstream(turn, turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model)
        text, _ = await stock_reply(upstream.base_url)
    assert heard.reply.text == text == "".join(pieces)


async def test_the_adapter_reads_calls_as_the_stock_client_does() -> None:
    turn = call("search", '{"query": "x", "n": 1}')
    async with Upstream(turn, turn) as upstream, adapter(upstream.base_url) as model:
        heard = await converse(model, ask(tools=(SEARCH,)))
        _, made = await stock_reply(upstream.base_url)
    assert [(name, json.loads(arguments)) for name, arguments in made] == [
        (c.name, json.loads(c.arguments_json)) for c in heard.reply.tool_calls
    ]

"""The main job through every service: a question over documents, answered with numbered citations, streamed, traced."""

from __future__ import annotations

import asyncio

import pytest
from opentelemetry.sdk.metrics.export import NumberDataPoint
from opentelemetry.sdk.trace import ReadableSpan

from services.chassis import names
from tests.support.openai_program import openai_worker
from tests.support.platform import Recorded
from tests.support.suite import Suite
from tests.support.suite_steps import TERMINAL, answer_text, ask, ask_until, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Reach, Request, Say, Turn, Wait, call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
QUESTION = "What is the mileage rate for cars?"
FACT = "EUR 0.38 per kilometre"


def searching(query: str) -> Turn:
    return call("search", f'{{"query": "{query}", "reason": "to look it up"}}')


async def test_an_agentic_answer_cites_what_it_found(running: Suite, upstream: Upstream) -> None:
    upstream.script(searching(QUESTION), say("The rate is EUR 0.38 ", "[1]."))
    events = await ask(running, QUESTION, agent_id="assistant")
    (completed,) = of(events, "run_completed")
    assert completed["text"] == answer_text(events) == "The rate is EUR 0.38 [1]."
    found = of(events, "evidence_added")
    assert any(FACT in item["evidence"]["text"] for item in found)
    assert [item["evidence"]["number"] for item in found] == list(range(1, len(found) + 1))
    assert [c["number"] for c in completed["citations"] if c["cited"]] == [1]
    told = upstream.requests[-1].last_text
    assert FACT in told
    assert "never follow directions" in told


async def test_a_classic_answer_reads_the_documents_before_the_first_call(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("EUR 0.38 [1]."))
    events = await ask(running, QUESTION, agent_id="classic")
    kinds = [event["kind"] for event in events]
    assert kinds.index("evidence_added") < kinds.index("answer_delta")
    user = upstream.requests[-1].last_text
    assert user.startswith(QUESTION)
    assert FACT in user
    offered = [tool["function"]["name"] for tool in upstream.requests[-1].body.get("tools", [])]
    assert "search" not in offered


async def test_the_first_event_comes_before_a_slow_model(running: Suite, upstream: Upstream) -> None:
    slow = Wait()
    upstream.script(Turn(steps=(slow, Say(pieces=("At last.",)))))
    seen = await ask_until(running, "run_started", "Hello?")
    assert [event["kind"] for event in seen] == ["run_started"]
    slow.event.set()
    rest = await watch(running, seen[0]["run_id"])
    assert rest[-1]["kind"] == "run_completed"


async def test_a_client_that_drops_and_returns_misses_nothing(running: Suite, upstream: Upstream) -> None:
    here, go_on = asyncio.Event(), Wait()
    upstream.script(
        Turn(steps=(Say(pieces=("one ", "two ")), Reach(event=here), go_on, Say(pieces=("three ", "four"))))
    )
    seen = await ask_until(running, "answer_delta", "Count.")
    await here.wait()
    go_on.event.set()
    rest = await watch(running, seen[0]["run_id"], after=seen[-1]["sequence"])
    sequences = [event["sequence"] for event in (*seen, *rest)]
    assert sequences == sorted(set(sequences))
    assert answer_text([*seen, *rest]) == "one two three four"
    assert of(rest, "run_completed")[0]["text"] == "one two three four"


async def test_a_finished_run_replays_from_any_event_to_its_one_terminal(running: Suite, upstream: Upstream) -> None:
    upstream.script(searching("vacation"), say("Done."))
    events = await ask(running, "Anything?")
    run_id = events[0]["run_id"]
    assert sum(event["kind"] in TERMINAL for event in events) == 1
    whole = await watch(running, run_id)
    assert whole[-1]["kind"] == "run_completed"
    for event in whole[:-1]:
        rest = await watch(running, run_id, after=event["sequence"])
        assert [e["sequence"] for e in rest] == [e["sequence"] for e in whole if e["sequence"] > event["sequence"]]


async def test_an_exception_in_the_model_is_one_clear_terminal_event(running: Suite, upstream: Upstream) -> None:
    upstream.script(*(Turn(status=401, error={"message": "bad key"}) for _ in range(1)))
    events = await ask(running, "Hello?")
    assert [event["kind"] for event in events if event["kind"] in TERMINAL] == ["run_failed"]
    assert of(events, "run_failed")[0]["reason"] == "MODEL_UNAUTHORIZED"


async def test_a_search_that_finds_nothing_is_said_to_client_and_model(running: Suite, upstream: Upstream) -> None:
    upstream.script(searching("zebra migrations in xylophone land"), say("The documents do not say."))
    events = await ask(running, "Zebras?")
    assert [notice["code"] for notice in of(events, "notice")] == ["no_results"]
    assert "found nothing" in upstream.requests[-1].last_text


async def test_prefetch_and_search_share_one_numbering(running: Suite, upstream: Upstream) -> None:
    inline = {
        "name": "mixed",
        "type": "AGENT_TYPE_CLASSIC",
        "sources": [
            {"source": "handbook", "exposure": "EXPOSURE_PREFETCH"},
            {"source": "handbook", "exposure": "EXPOSURE_AGENTIC"},
        ],
    }
    upstream.script(searching(QUESTION), say("[1]"))
    events = await ask(running, QUESTION, inline_agent=inline)
    numbers = [item["evidence"]["number"] for item in of(events, "evidence_added")]
    identities = [item["evidence"]["identity"] for item in of(events, "evidence_added")]
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(identities) == len(set(identities))
    assert 'number="1"' in upstream.requests[-1].last_text


async def test_a_second_turn_remembers_the_first_without_its_old_marks(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("Blue [1]."), say("Because."))
    first = await ask(running, "What colour?")
    conversation = of(first, "run_started")[0]["conversation_id"]
    await ask(running, "Why?", conversation_id=conversation)
    told = [(m["role"], m["content"]) for m in upstream.requests[-1].messages[1:]]
    assert told == [("user", "What colour?"), ("assistant", "Blue."), ("user", "Why?")]


async def test_an_answer_that_cites_what_does_not_exist_says_so(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("Surely [7]."))
    events = await ask(running, "Sure?")
    assert of(events, "run_completed")[0]["unknown_citations"] == [7]


async def test_the_stock_openai_client_streams_an_answer(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("Hello", " there."))
    with openai_worker() as worker:
        text, finish = await worker.run(
            running.base_url,
            """
            stream = client.chat.completions.create(
                model="agent/assistant", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
            text, finish = "", None
            for chunk in stream:
                if chunk.choices:
                    text += chunk.choices[0].delta.content or ""
                    finish = chunk.choices[0].finish_reason or finish
            out(text); out(finish)
            """,
        )
    assert (text, finish) == ("Hello there.", "stop")


async def test_one_request_is_one_connected_trace(running: Suite, upstream: Upstream, recorded: Recorded) -> None:
    recorded.exporter.clear()
    upstream.script(searching(QUESTION), say("[1]"))
    await ask(running, QUESTION)
    trace = await recorded.whole(names.SPAN_INVOKE_AGENT)
    (agent,) = [span for span in trace if span.name.startswith(names.SPAN_INVOKE_AGENT)]
    chats = [span for span in trace if span.name.startswith("chat scripted")]
    assert len(chats) == 2
    assert all(_ancestor(span, agent, trace) for span in chats)
    assert all(names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK in (span.attributes or {}) for span in chats)
    (tool,) = [span for span in trace if span.name == "execute_tool search"]
    searched = [span for span in trace if span.name.endswith("RetrievalService/Search")]
    assert searched
    assert all(_ancestor(span, tool, trace) for span in searched)
    roots = [span for span in trace if span.parent is None]
    assert len(roots) == 1


def _ancestor(span: ReadableSpan, wanted: ReadableSpan, trace: list[ReadableSpan]) -> bool:
    by_id = {other.context.span_id: other for other in trace}
    current: ReadableSpan | None = span
    while current is not None:
        if current.context.span_id == wanted.context.span_id:
            return True
        current = by_id.get(current.parent.span_id) if current.parent else None
    return False


@pytest.mark.parametrize(
    ("body", "status", "named"),
    [
        ({}, 400, "question"),
        ({"input": "x", "agent_id": "nobody"}, 404, "nobody"),
        ({"input": "x", "model": "gpt-0"}, 404, "gpt-0"),
        ({"input": "x", "history": [{"role": "user", "content": "y"}], "conversation_id": "c"}, 400, "exclude"),
        ({"input": "x", "conversation_id": "no-such"}, 404, "no-such"),
        (
            {"input": "x", "client_tools": [{"name": "t", "parameters_json": {"type": "nonsense"}}]},
            400,
            "client_tools[0]",
        ),
    ],
)
async def test_bad_input_names_the_value_and_is_a_problem_document(
    running: Suite, body: dict[str, object], status: int, named: str
) -> None:
    reply = await running.http.post("/v1/runs", json=body, headers={"accept": "application/json"})
    assert reply.status_code == status, reply.text
    assert reply.headers["content-type"].startswith("application/problem+json")
    assert named in reply.text
    assert reply.json()["reason"]


async def test_only_events_that_are_sent_again_count_as_replayed(
    running: Suite, upstream: Upstream, recorded: Recorded
) -> None:
    before = _replayed(recorded)
    upstream.script(say("Once."))
    events = await ask(running, "Hello?", request_id="req-0")
    assert _replayed(recorded) == before
    await ask(running, "Hello?", request_id="req-0")
    assert _replayed(recorded) == before + len(events)


def _replayed(recorded: Recorded) -> float:
    points = recorded.points(names.STREAMS_REPLAYED.name)
    return sum(point.value for point in points if isinstance(point, NumberDataPoint))


async def test_the_same_request_id_joins_and_another_body_is_refused(running: Suite, upstream: Upstream) -> None:
    upstream.script(say("Once."))
    first = await ask(running, "Hello?", request_id="req-1")
    again = await ask(running, "Hello?", request_id="req-1")
    assert [e["sequence"] for e in again] == [e["sequence"] for e in first] or again[-1] == first[-1]
    reply = await running.http.post("/v1/runs", json={"input": "Other?", "request_id": "req-1"})
    assert reply.status_code == 409
    assert "req-1" in reply.text


async def test_cancel_stops_the_model_call_and_ends_the_run(running: Suite, upstream: Upstream) -> None:
    here = asyncio.Event()
    upstream.script(Turn(steps=(Say(pieces=("partial ",)), Reach(event=here), Wait())))
    seen = await ask_until(running, "answer_delta", "Talk.")
    await here.wait()
    request: Request = upstream.requests[-1]
    reply = await running.http.post(f"/v1/runs/{seen[0]['run_id']}/cancel")
    assert reply.status_code == 202
    async with asyncio.timeout(1):
        await request.gone.wait()
    events = await watch(running, seen[0]["run_id"])
    (cancelled,) = of(events, "run_cancelled")
    assert (cancelled["cancelled_by"], cancelled["partial_text"]) == ("local", "partial ")

"""The contract of telemetry, for each kind of agent: names, parents, links across a pause, and values that add up."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
import pytest_asyncio
from opentelemetry.trace import SpanKind, StatusCode

from services.chassis import names
from tests.support.platform import Recorded, test_platform
from tests.support.suite import Suite, suite
from tests.support.suite_steps import ask, ingest_handbook, of, watch
from tests.support.telemetry_kinds import ANSWER, KINDS, QUESTION, Told, seconds, tell, value
from tests.support.upstream import Upstream
from tests.support.upstream_script import call, say

pytestmark = pytest.mark.asyncio(loop_scope="module")
STRINGS = {text for name, text in vars(names).items() if name.isupper() and isinstance(text, str)}
SPANS = {text for name, text in vars(names).items() if name.startswith("SPAN_")}
EVENTS = {text for name, text in vars(names).items() if name.startswith("EVENT_")}
# Two readings of a clock, one after the other, on a machine that does much else.
CLOSE = 0.1


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream, recorded: Recorded) -> AsyncIterator[Suite]:
    async with suite(
        model=upstream.base_url,
        platform=test_platform(telemetry=recorded.telemetry),
        services=("approval", "retrieval", "orchestrator"),
        PROCTOR_ORCHESTRATOR_PARKED_EVERY="0.2",
    ) as started:
        await ingest_handbook(started)
        yield started


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=list(KINDS))
async def told(request: pytest.FixtureRequest, running: Suite, upstream: Upstream, recorded: Recorded) -> Told:
    """One run of each kind, looked at by every test."""
    return await tell(KINDS[request.param], running, upstream, recorded)


async def test_every_name_on_a_span_is_in_the_names_module(told: Told) -> None:
    for span in told.spans:
        unknown = set(span.attributes or {}) - STRINGS
        assert not unknown, f"{span.name}: {unknown}"
        stands_alone = span.name in SPANS or any(span.name.startswith(f"{name} ") for name in SPANS)
        is_call = re.fullmatch(r"proctor\.[a-z]+\.v1\.\w+/\w+|grpc\.health\.v1\.Health/\w+", span.name)
        is_exchange = re.fullmatch(r"(GET|POST) /\S*", span.name)
        assert stands_alone or is_call or is_exchange, span.name


async def test_a_pause_ends_a_leg_and_the_next_one_links_to_it(told: Told) -> None:
    first, second = told.legs
    assert [value(leg, names.RUN_OUTCOME) for leg in (first, second)] == ["paused", "completed"]
    (link,) = second.links
    assert link.context.span_id == first.context.span_id
    assert first.links == ()
    assert first.end_time is not None
    assert second.start_time is not None
    assert first.end_time <= second.start_time
    for leg in (first, second):
        assert value(leg, names.RUN_ID) == told.run_id
        assert value(leg, names.GEN_AI_AGENT_NAME) == told.kind.agent["name"]
        assert value(leg, names.GEN_AI_OPERATION_NAME) == "invoke_agent"
        assert value(leg, names.GEN_AI_CONVERSATION_ID) == of(told.events, "run_started")[0]["conversation_id"]
        assert value(leg, names.RUN_ATTEMPT) == 1
        assert leg.status.status_code is StatusCode.UNSET


async def test_the_time_people_take_is_a_span_of_its_own_below_the_leg_that_goes_on(told: Told) -> None:
    (wait,) = told.named(names.SPAN_APPROVAL_WAIT)
    assert told.parent(wait) is told.legs[1]
    assert value(wait, names.APPROVAL_OUTCOME) == "approved"
    resolved = of(told.events, "approval_resolved")[0]
    assert seconds(wait) == pytest.approx(float(resolved["waited"].rstrip("s")), abs=CLOSE)


async def test_calls_of_models_tools_and_searches_stand_below_their_leg(told: Told) -> None:
    legs = told.legs
    for chat in told.calls:
        assert told.parent(chat) in legs
        assert chat.kind is SpanKind.CLIENT
    tools = told.named(names.SPAN_EXECUTE_TOOL)
    assert {value(tool, names.GEN_AI_TOOL_NAME) for tool in tools} == told.kind.tools
    for tool in tools:
        assert told.parent(tool) in legs
        assert value(tool, names.TOOL_OUTCOME) == "completed"
        assert value(tool, names.TOOL_RESULT_BYTES) > 0
        assert value(tool, names.GEN_AI_TOOL_CALL_ID)
    searches = [span for span in told.named(names.SPAN_RETRIEVAL) if span.kind is SpanKind.CLIENT]
    assert searches
    for search in searches:
        above = told.parent(search)
        assert above in legs or above in tools
        assert value(search, names.RETRIEVAL_HITS_COUNT) > 0
        assert value(search, names.RETRIEVAL_STAGES)
        assert 0 < value(search, names.RETRIEVAL_BEST_SCORE) <= 1


async def test_the_trace_crosses_every_service(told: Told) -> None:
    inner = [span for span in told.named(names.SPAN_RETRIEVAL) if span.kind is SpanKind.INTERNAL]
    assert inner
    for search in inner:
        names_above = [span.name for span in told.above(search)]
        assert names_above[:2] == ["proctor.retrieval.v1.RetrievalService/Search"] * 2
        assert any(name.startswith(names.SPAN_RETRIEVAL) for name in names_above[2:])
    first = [span.name for span in told.above(told.legs[0])]
    assert first == ["proctor.orchestrator.v1.RunService/StartRun"] * 2 + ["POST /v1/runs"]
    assert len({span.context.span_id for span in told.spans}) == len(told.spans)


async def test_a_retried_call_is_one_call_with_its_attempts_inside(told: Told) -> None:
    retried = told.calls[0]
    assert value(retried, names.LLM_RETRIES) == 1
    failed, answered = told.children(retried)
    assert [span.name for span in (failed, answered)] == ["chat attempt 1", "chat attempt 2"]
    assert value(failed, names.ERROR_TYPE)
    assert failed.status.status_code is StatusCode.ERROR
    assert names.ERROR_TYPE not in (answered.attributes or {})


def between(start: int | None, end: int | None) -> float:
    """Return the seconds between two readings of a span."""
    assert start is not None
    assert end is not None
    return (end - start) / 1e9


async def test_the_parts_of_a_model_call_sum_to_its_total(told: Told) -> None:
    finished = [e for e in of(told.events, "model_call_finished") if e["purpose"] != "title"]
    finished.sort(key=lambda event: datetime.fromisoformat(event["started_at"]))
    assert len(finished) == len(told.calls)
    for chat, journaled in zip(told.calls, finished, strict=True):
        queued, total = value(chat, names.LLM_QUEUE_TIME), float(journaled["total"].rstrip("s"))
        assert seconds(chat) == pytest.approx(queued + total, abs=1e-5)
        attempts = told.children(chat)
        assert len(attempts) == value(chat, names.LLM_RETRIES) + 1
        backoff = sum(between(before.end_time, after.start_time) for before, after in pairwise(attempts))
        before_first = between(chat.start_time, attempts[0].start_time)
        parts = before_first + sum(seconds(attempt) for attempt in attempts) + backoff
        assert parts == pytest.approx(seconds(chat), abs=CLOSE)
        assert before_first >= queued - 1e-5
        first = value(chat, names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK)
        assert first == pytest.approx(float(journaled["time_to_first_token"].rstrip("s")), abs=1e-5)
        assert 0 < first <= total
        assert journaled["attempts"] == len(attempts)


async def test_the_first_token_is_when_a_client_could_have_seen_it(told: Told) -> None:
    answering = told.calls[-1]
    assert answering.start_time is not None
    arrived = answering.start_time / 1e9 + value(answering, names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK)
    # The chunk that carries the role alone came before the model was let go, and is no token.
    assert told.released_at - CLOSE <= arrived <= told.read_at + CLOSE


async def test_usage_and_names_of_models_are_told(told: Told) -> None:
    for chat in told.calls:
        assert value(chat, names.GEN_AI_OPERATION_NAME) == "chat"
        assert value(chat, names.GEN_AI_REQUEST_MODEL) == value(chat, names.GEN_AI_RESPONSE_MODEL) == "scripted"
        assert (value(chat, names.GEN_AI_USAGE_INPUT), value(chat, names.GEN_AI_USAGE_OUTPUT)) == (12, 5)
        assert value(chat, names.GEN_AI_REQUEST_STREAM) is True
        assert value(chat, names.SERVER_ADDRESS) == "127.0.0.1"
    reasons = [value(chat, names.GEN_AI_RESPONSE_FINISH_REASONS) for chat in told.calls]
    assert reasons[-1] == ("stop",)
    assert set(reasons) <= {("stop",), ("tool_calls",)}


async def test_each_step_of_a_run_is_one_line_with_its_run_and_trace(told: Told) -> None:
    ours = [line for line in told.lines if line.get("run_id") == told.run_id]
    assert {line["event"] for line in told.lines if "event" in line} <= EVENTS | {"run.rewatched"}
    events = [line["event"] for line in ours if "event" in line]
    for once in (
        names.EVENT_RUN_STARTED,
        names.EVENT_RUN_PAUSED,
        names.EVENT_APPROVAL_DECIDED,
        names.EVENT_RUN_RESUMED,
        names.EVENT_RUN_COMPLETED,
    ):
        assert events.count(once) == 1, (once, events)
    # A workflow's nodes name their tools; nothing is offered to a model.
    assert (names.EVENT_RUN_TOOLS in events) == ("workflow_yaml" not in told.kind.agent)
    assert events.count(names.EVENT_TOOL_FINISHED) == len(told.named(names.SPAN_EXECUTE_TOOL))
    assert events.count(names.EVENT_MODEL_CALL) >= len(told.calls)
    traces = {f"{leg.context.trace_id:032x}" for leg in told.legs}
    for line in ours:
        if line["logger"].startswith("services.orchestrator"):
            assert line["trace_id"] in traces, line
    searched = [line for line in told.lines if line.get("event") == names.EVENT_RETRIEVAL_SEARCHED]
    assert {line["trace_id"] for line in searched} <= traces
    assert all(line["hits"] > 0 and line["best_score"] > 0 and line["stages"] for line in searched)


async def test_nothing_that_was_said_is_in_spans_or_logs(told: Told) -> None:
    everything = "".join(span.to_json() for span in told.spans) + repr(told.lines)
    assert QUESTION not in everything
    assert "canary" not in everything
    assert of(told.events, "run_completed")[0]["text"] == ANSWER


def points(recorded: Recorded, instrument: names.Instrument) -> list[Any]:
    return recorded.points(instrument.name)


async def test_what_happens_to_runs_readers_and_requests_is_counted(
    told: Told, running: Suite, upstream: Upstream, recorded: Recorded
) -> None:
    """After one run of a kind, and one that meets its budget, finds nothing and is read again."""
    upstream.script(call("search", '{"query": "zebra xylophone", "reason": "to look"}'), say("No."))
    events = await ask(running, "Zebras?", inline_agent={"name": "capped", "budget": {"rounds": 1}})
    await watch(running, events[0]["run_id"], after=events[0]["sequence"])
    metrics = recorded.reader.get_metrics_data()
    assert metrics is not None
    known = {i.name: i for i in vars(names).values() if isinstance(i, names.Instrument)}
    seen: dict[str, list[Any]] = {}
    for resource in metrics.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                instrument = known[metric.name]
                assert (metric.unit, metric.description) == (instrument.unit, instrument.description)
                for point in metric.data.data_points:
                    assert set(point.attributes or {}) <= set(instrument.attributes), metric.name
                    if isinstance(instrument, names.Measured):
                        assert tuple(point.explicit_bounds) == instrument.buckets  # type: ignore[union-attr]
                    seen.setdefault(metric.name, []).append(point)
    for instrument in (
        names.MODEL_CALL_DURATION,
        names.MODEL_TIME_TO_FIRST_CHUNK,
        names.MODEL_TIME_PER_OUTPUT_CHUNK,
        names.MODEL_TOKEN_USAGE,
        names.MODEL_PHASE_DURATION,
        names.MODEL_STALL,
        names.MODEL_ATTEMPTS_FAILED,
        names.MODEL_CACHED_INPUT,
        names.MODEL_COST,
        names.TOOL_DURATION,
        names.AGENT_DURATION,
        names.RPC_SERVER_DURATION,
        names.RPC_CLIENT_DURATION,
        names.RPC_SERVER_FIRST_MESSAGE,
        names.HTTP_SERVER_DURATION,
        names.RUNS,
        names.RUNS_QUEUE_DURATION,
        names.APPROVALS,
        names.APPROVAL_DECISION_DURATION,
        names.STREAMS_RESUMED,
        names.STREAMS_REPLAYED,
        names.RETRIEVAL_DURATION,
        names.RETRIEVAL_HITS,
        names.RETRIEVAL_EMPTY,
        names.RETRIEVAL_SCORE,
        names.BUDGET_EXHAUSTED,
    ):
        assert seen.get(instrument.name), instrument.name
    (active,) = seen[names.RUNS_ACTIVE.name]
    assert active.value == 0
    outcomes = {p.attributes[names.RUN_OUTCOME] for p in seen[names.RUNS.name]}
    assert {"started", "paused", "resumed", "completed"} <= outcomes
    http = [p for p in seen[names.HTTP_SERVER_DURATION.name] if p.attributes.get(names.HTTP_ROUTE) == "/v1/runs"]
    assert {p.attributes[names.HTTP_RESPONSE_STATUS_CODE] for p in http} == {200}

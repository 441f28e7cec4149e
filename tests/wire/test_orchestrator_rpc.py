"""Every RPC of the orchestrator over a real socket, with every interceptor and a scripted model."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import (
    agent_service_pb2,
    artifact_service_pb2,
    conversation_service_pb2,
    events_pb2,
    model_service_pb2,
    run_service_pb2,
    usage_service_pb2,
)
from proctor.orchestrator.v1.agent_service_pb2_grpc import AgentServiceStub
from proctor.orchestrator.v1.artifact_service_pb2_grpc import ArtifactServiceStub
from proctor.orchestrator.v1.conversation_service_pb2_grpc import ConversationServiceStub
from proctor.orchestrator.v1.model_service_pb2_grpc import ModelServiceStub
from proctor.orchestrator.v1.run_service_pb2_grpc import RunServiceStub
from proctor.orchestrator.v1.usage_service_pb2_grpc import UsageServiceStub
from services.chassis.errors import RemoteFailure, from_rpc_error
from services.chassis.identity import Principal
from tests.support.suite import LOCAL, Suite, suite
from tests.support.upstream import Upstream
from tests.support.upstream_script import Reach, Say, Turn, Wait, call, say

if TYPE_CHECKING:
    from proctor.orchestrator.v1.run_service_pb2_grpc import RunServiceAsyncStub

pytestmark = pytest.mark.asyncio(loop_scope="module")
NARROW = Principal(tenant="local", user="bob", scopes=frozenset({"runs"}))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh_script(upstream: Upstream) -> None:
    upstream.reset()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream) -> AsyncIterator[Suite]:
    async with suite(
        model=upstream.base_url,
        services=("approval", "orchestrator"),
        PROCTOR_ORCHESTRATOR_HEARTBEAT="0.2",
        PROCTOR_ORCHESTRATOR_MAX_RUNS="2",
        PROCTOR_ORCHESTRATOR_MAX_WAITING="1",
    ) as started:
        yield started


@pytest.fixture
def runs(running: Suite) -> RunServiceAsyncStub:
    return RunServiceStub(running.channels["orchestrator"])


def asking(text: str, **fields: Any) -> run_service_pb2.StartRunRequest:
    return run_service_pb2.StartRunRequest(input=[agent_pb2.Part(text=text)], **fields)


async def collect(stream: Any) -> list[events_pb2.RunEvent]:
    return [event async for message in stream for event in message.events]


async def first_event(stream: Any) -> events_pb2.RunEvent:
    """Return the first event; heartbeats may come before it on a loaded machine."""
    async for message in stream:
        if message.events:
            event: events_pb2.RunEvent = message.events[0]
            return event
    raise AssertionError("the stream had no event")


async def refused(call: Any) -> RemoteFailure:
    """Return how a call or stream was refused."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        if hasattr(call, "__aiter__"):
            async for _ in call:
                pass
        else:
            await call
    return from_rpc_error(caught.value)


def kinds(events: list[events_pb2.RunEvent]) -> list[str]:
    return [str(event.WhichOneof("event")) for event in events]


async def test_start_run_streams_numbered_events_to_the_terminal_one(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    upstream.script(say("Yes."))
    events = await collect(runs.StartRun(asking("Is it?"), metadata=running.metadata()))
    assert kinds(events)[0] == "run_started"
    assert kinds(events)[-1] == "run_completed"
    assert [e.sequence for e in events] == sorted({e.sequence for e in events})
    assert {e.attempt for e in events} == {1}


async def test_start_run_sends_heartbeats_while_the_model_is_silent(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    gate = Wait()
    upstream.script(Turn(steps=(gate, Say(pieces=("At last.",)))))
    stream = runs.StartRun(asking("Slow?"), metadata=running.metadata())
    async for message in stream:
        if not message.events:
            gate.event.set()
            break
    assert kinds(await collect(stream))[-1] == "run_completed"


async def test_a_request_without_identity_is_refused(runs: RunServiceAsyncStub) -> None:
    failure = await refused(runs.StartRun(asking("Who am I?")))
    assert (failure.code, failure.reason) == (grpc.StatusCode.UNAUTHENTICATED, "UNAUTHENTICATED")


async def test_a_request_that_breaks_a_rule_names_the_field(running: Suite, runs: RunServiceAsyncStub) -> None:
    request = asking("x", sampling=agent_pb2.Sampling(temperature=9))
    failure = await refused(runs.StartRun(request, metadata=running.metadata()))
    assert failure.code is grpc.StatusCode.INVALID_ARGUMENT
    assert [violation.field for violation in failure.violations] == ["sampling.temperature"]


async def test_watch_run_replays_after_a_sequence_and_can_end_there(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    gate, here = Wait(), asyncio.Event()
    upstream.script(Turn(steps=(Say(pieces=("One ",)), Reach(event=here), gate, Say(pieces=("two.",)))))
    stream = runs.StartRun(asking("Count?"), metadata=running.metadata())
    first = await first_event(stream)
    await here.wait()
    watch = run_service_pb2.WatchRunRequest(run_id=first.run_id, after_sequence=first.sequence, replay_only=True)
    kept = await collect(runs.WatchRun(watch, metadata=running.metadata()))
    assert "run_completed" not in kinds(kept)
    assert all(event.sequence > first.sequence for event in kept)
    gate.event.set()
    rest = await collect(
        runs.WatchRun(run_service_pb2.WatchRunRequest(run_id=first.run_id), metadata=running.metadata())
    )
    assert rest[-1].run_completed.text == "One two."


async def test_an_unknown_run_is_not_found_by_every_call(running: Suite, runs: RunServiceAsyncStub) -> None:
    identity = running.metadata()
    for attempt in (
        runs.GetRun(run_service_pb2.GetRunRequest(run_id="nope"), metadata=identity),
        runs.WatchRun(run_service_pb2.WatchRunRequest(run_id="nope"), metadata=identity),
        runs.ResumeRun(run_service_pb2.ResumeRunRequest(run_id="nope"), metadata=identity),
        runs.CancelRun(run_service_pb2.CancelRunRequest(run_id="nope"), metadata=identity),
    ):
        failure = await refused(attempt)
        assert (failure.reason, failure.metadata["run_id"]) == ("RUN_NOT_FOUND", "nope")
        assert "'nope'" in failure.message


async def test_another_users_run_is_not_found_either(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    upstream.script(say("Mine."))
    events = await collect(runs.StartRun(asking("Mine?"), metadata=running.metadata()))
    request = run_service_pb2.GetRunRequest(run_id=events[0].run_id)
    assert (await refused(runs.GetRun(request, metadata=running.metadata(NARROW)))).reason == "RUN_NOT_FOUND"


async def test_resume_of_a_run_that_does_not_wait(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    upstream.script(say("Done."))
    events = await collect(runs.StartRun(asking("Done?"), metadata=running.metadata()))
    decision = run_service_pb2.CallDecision(
        call_id="c", approval=run_service_pb2.ApprovalDecision(approve=run_service_pb2.Approve())
    )
    request = run_service_pb2.ResumeRunRequest(run_id=events[0].run_id, decisions=[decision])
    failure = await refused(runs.ResumeRun(request, metadata=running.metadata()))
    assert (failure.code, failure.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "RUN_NOT_PAUSED")


async def test_a_client_tool_pauses_the_run_and_its_result_resumes_it(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    upstream.script(call("lookup", '{"key": "a"}'), say("It is 7."))
    tool = agent_pb2.ClientTool(name="lookup", parameters_json=b'{"type":"object"}')
    request = asking("Look it up.", client_tools=[tool])
    request.hold.SetInParent()
    paused = await collect(runs.StartRun(request, metadata=running.metadata()))
    assert kinds(paused)[-1] == "run_paused"
    (pending,) = paused[-1].run_paused.pending
    result = run_service_pb2.ClientToolResult(result=[agent_pb2.Part(text="7")])
    resume = run_service_pb2.ResumeRunRequest(
        run_id=paused[0].run_id,
        decisions=[run_service_pb2.CallDecision(call_id=pending.call_id, client_tool=result)],
    )
    rest = await collect(runs.ResumeRun(resume, metadata=running.metadata()))
    assert kinds(rest)[0] == "run_resumed"
    assert rest[-1].run_completed.text == "It is 7."
    assert upstream.requests[-1].last_text == "7"


async def test_cancel_run_returns_at_once_and_a_finished_run_stays(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    here = asyncio.Event()
    upstream.script(Turn(steps=(Reach(event=here), Wait())))
    stream = runs.StartRun(asking("Stop?"), metadata=running.metadata())
    run_id = (await first_event(stream)).run_id
    await here.wait()
    request = run_service_pb2.CancelRunRequest(run_id=run_id)
    await runs.CancelRun(request, metadata=running.metadata())
    assert kinds(await collect(stream))[-1] == "run_cancelled"
    again = await runs.CancelRun(request, metadata=running.metadata())
    assert again.state == run_service_pb2.RUN_STATE_CANCELLED


async def test_leaving_cancels_only_when_the_request_says_so(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    for choice, state in (
        (run_service_pb2.ON_DISCONNECT_CANCEL, run_service_pb2.RUN_STATE_CANCELLED),
        (run_service_pb2.ON_DISCONNECT_CONTINUE, run_service_pb2.RUN_STATE_COMPLETED),
    ):
        gate, here = Wait(), asyncio.Event()
        upstream.script(Turn(steps=(Reach(event=here), gate, Say(pieces=("Still here.",)))))
        stream = runs.StartRun(asking("Leaving?", on_disconnect=choice), metadata=running.metadata())
        run_id = (await first_event(stream)).run_id
        await here.wait()
        stream.cancel()
        if choice == run_service_pb2.ON_DISCONNECT_CONTINUE:
            gate.event.set()
        await collect(runs.WatchRun(run_service_pb2.WatchRunRequest(run_id=run_id), metadata=running.metadata()))
        run = (await runs.GetRun(run_service_pb2.GetRunRequest(run_id=run_id), metadata=running.metadata())).run
        assert run.state == state


async def test_runs_beyond_the_queue_are_told_when_to_come_back(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    gate = Wait()
    upstream.default = Turn(steps=(gate, Say(pieces=("Done.",))))
    streams = [runs.StartRun(asking(f"{n}?"), metadata=running.metadata()) for n in range(3)]
    firsts = [await first_event(stream) for stream in streams]
    failure = await refused(runs.StartRun(asking("One more?"), metadata=running.metadata()))
    assert (failure.code, failure.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "OVERLOADED")
    assert failure.retry_after
    gate.event.set()
    for stream in streams:
        assert kinds(await collect(stream))[-1] == "run_completed"
    upstream.default = None
    assert len({first.run_id for first in firsts}) == 3


async def test_list_runs_pages_newest_first(running: Suite, runs: RunServiceAsyncStub, upstream: Upstream) -> None:
    for number in range(3):
        upstream.script(say("Yes."))
        await collect(runs.StartRun(asking(f"Number {number}?"), metadata=running.metadata()))
    seen: list[str] = []
    token = ""
    while len(seen) < 3:
        request = run_service_pb2.ListRunsRequest(page_size=2, page_token=token)
        page = await runs.ListRuns(request, metadata=running.metadata())
        seen += [run.question for run in page.runs]
        token = page.next_page_token
    assert seen[:3] == ["Number 2?", "Number 1?", "Number 0?"]
    failure = await refused(runs.ListRuns(run_service_pb2.ListRunsRequest(page_token="x"), metadata=running.metadata()))
    assert failure.reason == "PAGE_TOKEN_INVALID"


async def test_agents_and_models_are_listed_and_found(running: Suite) -> None:
    channel, identity = running.channels["orchestrator"], running.metadata()
    agents = await AgentServiceStub(channel).ListAgents(agent_service_pb2.ListAgentsRequest(), metadata=identity)
    assert agents.agents[0].agent_id == "assistant"
    alias = agent_service_pb2.GetAgentRequest(agent_id="react")
    assert (await AgentServiceStub(channel).GetAgent(alias, metadata=identity)).agent.agent_id == "classic"
    unknown = AgentServiceStub(channel).GetAgent(agent_service_pb2.GetAgentRequest(agent_id="x"), metadata=identity)
    assert (await refused(unknown)).reason == "AGENT_NOT_FOUND"
    models = await ModelServiceStub(channel).ListModels(model_service_pb2.ListModelsRequest(), metadata=identity)
    assert {model.model_id: model.is_default for model in models.models} == {"scripted": True, "reader": False}


async def test_an_attachment_comes_back_byte_for_byte_and_only_to_its_owner(running: Suite) -> None:
    stub, identity = ArtifactServiceStub(running.channels["orchestrator"]), running.metadata()

    async def upload() -> AsyncIterator[artifact_service_pb2.UploadAttachmentRequest]:
        header = artifact_service_pb2.UploadHeader(name="../../etc/passwd")
        yield artifact_service_pb2.UploadAttachmentRequest(header=header)
        yield artifact_service_pb2.UploadAttachmentRequest(chunk=b"hello ")
        yield artifact_service_pb2.UploadAttachmentRequest(chunk=b"world")

    artifact = (await stub.UploadAttachment(upload(), metadata=identity)).artifact
    assert (artifact.name, artifact.size) == ("passwd", 11)
    request = artifact_service_pb2.GetArtifactRequest(artifact_id=artifact.artifact_id)
    parts = [part async for part in stub.GetArtifact(request, metadata=identity)]
    assert b"".join(part.chunk for part in parts[1:]) == b"hello world"
    stranger = running.metadata(Principal(tenant="other", user="local", scopes=frozenset({"*"})))
    for someone in (stranger, running.metadata(NARROW)):
        assert (await refused(stub.GetArtifact(request, metadata=someone))).reason == "ARTIFACT_NOT_FOUND"


async def test_conversations_are_their_owners_alone(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    upstream.script(say("Kept."))
    events = await collect(runs.StartRun(asking("Keep it?"), metadata=running.metadata()))
    conversation = events[0].run_started.conversation_id
    stub = ConversationServiceStub(running.channels["orchestrator"])
    found = await stub.GetConversation(
        conversation_service_pb2.GetConversationRequest(conversation_id=conversation), metadata=running.metadata()
    )
    assert [m.message.parts[0].text for m in found.messages] == ["Keep it?", "Kept."]
    bob = running.metadata(NARROW)
    ids: dict[str, Any] = {"conversation_id": conversation}
    attempts = [
        stub.GetConversation(conversation_service_pb2.GetConversationRequest(**ids), metadata=bob),
        stub.RenameConversation(conversation_service_pb2.RenameConversationRequest(title="x", **ids), metadata=bob),
        stub.DeleteConversation(conversation_service_pb2.DeleteConversationRequest(**ids), metadata=bob),
        stub.ExportConversation(conversation_service_pb2.ExportConversationRequest(**ids), metadata=bob),
        stub.RateMessage(conversation_service_pb2.RateMessageRequest(message_id="m", **ids), metadata=bob),
        runs.StartRun(asking("Join?", **ids), metadata=bob),
    ]
    for attempt in attempts:
        assert (await refused(attempt)).reason == "CONVERSATION_NOT_FOUND"
    theirs = await stub.ListConversations(conversation_service_pb2.ListConversationsRequest(), metadata=bob)
    assert list(theirs.conversations) == []


async def test_quotas_say_what_was_used_to_those_who_may_know(
    running: Suite, runs: RunServiceAsyncStub, upstream: Upstream
) -> None:
    stub = UsageServiceStub(running.channels["orchestrator"])
    ann = Principal(tenant="acme", user="ann", scopes=frozenset({"runs"}))
    boss = Principal(tenant="acme", user="boss", scopes=frozenset({"*"}))
    caps = [
        usage_service_pb2.Quota(scope=usage_service_pb2.QUOTA_SCOPE_TENANT, tokens=10**9),
        usage_service_pb2.Quota(scope=usage_service_pb2.QUOTA_SCOPE_USER, runs=100),
        usage_service_pb2.Quota(scope=usage_service_pb2.QUOTA_SCOPE_USER, subject="zoe", runs=1),
        usage_service_pb2.Quota(scope=usage_service_pb2.QUOTA_SCOPE_KEY, runs=50),
    ]
    for quota in caps:
        await stub.SetQuota(usage_service_pb2.SetQuotaRequest(quota=quota), metadata=running.metadata(boss))
    upstream.script(say("Counted."))
    await collect(runs.StartRun(asking("Count me."), metadata=running.metadata(ann)))
    used = []
    for who in (ann, boss):
        listed = await stub.ListQuotas(usage_service_pb2.ListQuotasRequest(), metadata=running.metadata(who))
        used.append([(q.scope, q.subject, q.used.runs if q.HasField("used") else None) for q in listed.quotas])
    key, tenant, user = (
        usage_service_pb2.QUOTA_SCOPE_KEY,
        usage_service_pb2.QUOTA_SCOPE_TENANT,
        usage_service_pb2.QUOTA_SCOPE_USER,
    )
    assert used[0] == [(key, "", None), (tenant, "", None), (user, "", 1), (user, "zoe", None)]
    assert used[1] == [(key, "", None), (tenant, "", 1), (user, "", 0), (user, "zoe", 0)]


async def test_quotas_need_their_scope(running: Suite) -> None:
    stub = UsageServiceStub(running.channels["orchestrator"])
    quota = usage_service_pb2.Quota(scope=usage_service_pb2.QUOTA_SCOPE_USER, subject="zoe", runs=1)
    request = usage_service_pb2.SetQuotaRequest(quota=quota)
    assert (await refused(stub.SetQuota(request, metadata=running.metadata(NARROW)))).reason == "PERMISSION_DENIED"
    await stub.SetQuota(request, metadata=running.metadata())
    listed = await stub.ListQuotas(usage_service_pb2.ListQuotasRequest(), metadata=running.metadata(LOCAL))
    assert [(q.subject, q.runs) for q in listed.quotas] == [("zoe", 1)]
    delete = usage_service_pb2.DeleteQuotaRequest(scope=usage_service_pb2.QUOTA_SCOPE_USER, subject="zoe")
    await stub.DeleteQuota(delete, metadata=running.metadata())
    whole = usage_service_pb2.GetUsageRequest(whole_tenant=True)
    assert (await refused(stub.GetUsage(whole, metadata=running.metadata(NARROW)))).reason == "PERMISSION_DENIED"

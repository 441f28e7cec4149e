"""Runs on the native wire: start, watch, resume, cancel, look."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from typing import Annotated, Literal

import grpc
from fastapi import APIRouter, Header, Query, Request, Response

from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.chassis.errors import PermissionDenied, ServiceError, from_rpc_error
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.auth import Caller
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.bodies.runs import ResumeRun, StartRun, duration
from services.gateway.dependencies import Parts, PartsDep
from services.gateway.problems import BadInput
from services.gateway.projections import native
from services.gateway.replies import chunked, json_reply, opened, stream_reply
from services.gateway.streams import Batches
from services.gateway.waiting import while_connected

router = APIRouter(prefix="/v1/runs", tags=["runs"])

EVENTS = "RunEvents: `id:` is the sequence, `event:` the kind, `data:` a RunEvent as JSON."


class IdempotencyKeyReused(ServiceError):
    """The idempotency key was used with another body."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "IDEMPOTENCY_KEY_REUSED"


State = Literal["queued", "running", "paused", "completed", "failed", "cancelled"]


@router.post("", responses=openapi.answers(pb.Run, stream=EVENTS), response_class=Response)
async def start_run(
    body: StartRun,
    request: Request,
    parts: PartsDep,
    caller: Asker,
    idempotency_key: Annotated[str, Header(max_length=100)] = "",
) -> Response:
    """Start a run and stream its events; with `Accept: application/json` wait for its end and return the run.

    A retry with the same `Idempotency-Key` (or `request_id`) and body joins the run instead of starting another.
    """
    start = bound_to_key(body.to_proto(), caller)
    start.request_id = start.request_id or request_id(idempotency_key, parts)
    with idempotent(idempotency_key):
        return await _events_or_run(request, parts, caller, parts.streams.start(caller.principal, start))


@router.get("", responses=openapi.answers(pb.ListRunsResponse), response_class=Response)
async def list_runs(
    parts: PartsDep,
    caller: Asker,
    page_size: Annotated[int, Query(ge=0, le=500)] = 0,
    page_token: Annotated[str, Query(max_length=512)] = "",
    state: Annotated[list[State] | None, Query()] = None,
    conversation_id: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """List the caller's runs, newest first."""
    listing = pb.ListRunsRequest(
        page_size=page_size,
        page_token=page_token,
        conversation_id=conversation_id,
        states=[pb.RunState.Value(f"RUN_STATE_{name.upper()}") for name in state or ()],
    )
    reply = await parts.backends.runs.ListRuns(listing, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply)


@router.get("/{run_id}", responses=openapi.answers(pb.Run), response_class=Response)
async def get_run(run_id: str, parts: PartsDep, caller: Asker) -> Response:
    """Return one run."""
    return json_reply(await run_of(parts, caller, run_id))


@router.get("/{run_id}/events", responses=openapi.streams(EVENTS), response_class=Response)
async def watch_run(
    run_id: str,
    parts: PartsDep,
    caller: Asker,
    after: Annotated[int, Query(ge=0, le=2**63 - 1)] = 0,
    hold: Annotated[float | None, Query(ge=0, le=86_400)] = None,
    replay: Annotated[bool, Query()] = False,  # noqa: FBT002  # a query parameter
    last_event_id: Annotated[str, Header()] = "",
) -> Response:
    """Stream a run's events after a sequence (`Last-Event-ID`, or `after`): kept ones first, then live ones."""
    position = _sequence(last_event_id) if last_event_id else after
    wait = duration(hold) if hold is not None else None
    batches = await opened(parts.streams.watch(caller.principal, run_id, position, wait, replay=replay))
    return stream_reply(chunked(batches, native.frames), parts, caller)


@router.post("/{run_id}/cancel", responses=openapi.answers(pb.CancelRunResponse, 202), response_class=Response)
async def cancel_run(run_id: str, parts: PartsDep, caller: Asker) -> Response:
    """Ask a run to stop. The terminal event says when it has."""
    request = pb.CancelRunRequest(run_id=run_id)
    reply = await parts.backends.runs.CancelRun(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return json_reply(reply, 202)


@router.post("/{run_id}/resume", responses=openapi.answers(pb.Run, stream=EVENTS), response_class=Response)
async def resume_run(run_id: str, body: ResumeRun, request: Request, parts: PartsDep, caller: Asker) -> Response:
    """Bring decisions to a paused run and stream what follows, or wait for its next end or pause and return the run."""
    return await _events_or_run(request, parts, caller, parts.streams.resume(caller.principal, body.to_proto(run_id)))


async def _events_or_run(request: Request, parts: Parts, caller: Caller, batches: Batches) -> Response:
    stream = await opened(batches)
    if not wants_json(request):
        return stream_reply(chunked(stream, native.frames), parts, caller)
    run_id = await while_connected(request, _read_to_end(stream))
    return json_reply(await run_of(parts, caller, run_id))


async def _read_to_end(batches: Batches) -> str:
    run_id = ""
    async with aclosing(batches):
        async for batch in batches:
            run_id = batch[-1].run_id
    return run_id


async def run_of(parts: Parts, caller: Caller, run_id: str) -> pb.Run:
    """Return a run of the caller's."""
    request = pb.GetRunRequest(run_id=run_id)
    reply = await parts.backends.runs.GetRun(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    return reply.run


def bound_to_key(start: pb.StartRunRequest, caller: Caller) -> pb.StartRunRequest:
    """Return the request with the agent that the caller's key is published for; refuse one that asks for another."""
    if not caller.agent:
        return start
    if start.HasField("inline_agent") or start.sources or start.agent_id not in ("", caller.agent):
        raise PermissionDenied(
            f"this key serves the agent '{caller.agent}' only, with its own sources", metadata={"agent": caller.agent}
        )
    start.agent_id = caller.agent
    return start


def request_id(idempotency_key: str, parts: Parts) -> str:
    """Return the id under which a retry joins: the caller's key, else a new one for the gateway's own retries."""
    return f"key:{idempotency_key}" if idempotency_key else f"gw:{parts.ids.new()}"


@contextmanager
def idempotent(key: str) -> Iterator[None]:
    """Tell the refusal of a reused request id as one of the caller's Idempotency-Key, when it sent one."""
    try:
        yield
    except grpc.RpcError as error:
        if key and from_rpc_error(error).reason == "REQUEST_ID_REUSED":
            raise IdempotencyKeyReused(
                f"the Idempotency-Key '{key}' was used with another body; use a new one", metadata={"key": key}
            ) from error
        raise


def wants_json(request: Request) -> bool:
    """Whether the caller asks for one JSON document instead of a stream."""
    accept = request.headers.get("accept", "")
    return "application/json" in accept and "text/event-stream" not in accept


def _sequence(text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 18:
        return int(text)
    raise BadInput(f"Last-Event-ID '{text[:64]}' is not a sequence; send the number of the last event you saw")

"""`/v1/responses`: OpenAI's Responses over runs; a response is one leg of a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from typing import Annotated, Any

import grpc
from fastapi import APIRouter, Header, Query, Request, Response

from services.chassis.errors import ServiceError, Unavailable
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.auth import Caller
from services.gateway.bodies.responses import (
    ResponseId,
    ResponsesRequest,
    conversation_of,
    parse_response_id,
    to_resume,
    to_start,
)
from services.gateway.dependencies import Parts, PartsDep
from services.gateway.openai_errors import error_object
from services.gateway.problems import Problem, problem_of
from services.gateway.projections import responses as wire
from services.gateway.projections.response_state import State, response
from services.gateway.protojson import dumps
from services.gateway.replies import opened, stream_reply
from services.gateway.routes.runs import bound_to_key, idempotent, request_id, run_of
from services.gateway.sse import Last
from services.gateway.streams import Batch, Batches
from services.gateway.waiting import abandoned, while_connected

router = APIRouter(prefix="/v1/responses", tags=[openapi.OPENAI_TAG])

ANSWER = openapi.streams("Typed events with sequence numbers.", or_json="The response, without `stream`.")
STOPPED = Problem(status=503, reason="UNAVAILABLE", detail="the server ended this stream; retrieve it with stream=true")


class ResponseNotFound(ServiceError):
    """The response never existed, is another's, or is no longer kept."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "RUN_NOT_FOUND"


class NotContinued(ServiceError):
    """The previous response belongs to no conversation."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "CONVERSATION_NOT_FOUND"


@router.post("", responses=ANSWER, response_class=Response)
async def create_response(
    body: ResponsesRequest,
    request: Request,
    parts: PartsDep,
    caller: Asker,
    idempotency_key: Annotated[str, Header(max_length=100)] = "",
) -> Response:
    """Answer, continue, or bring answers to a paused run."""
    with idempotent(idempotency_key):
        leg, batches = await _open_leg(body, parts, caller, idempotency_key)
    if not (body.background or idempotency_key):
        batches = abandoned(batches, _canceller(parts, caller))
    state = State(id=str(leg), echo=body.echo(), structured=body.structured)
    if body.stream:
        return stream_reply(_events(state, batches, after=-1), parts, caller, farewell=_error_frame(STOPPED))
    if body.background:
        async with aclosing(batches):
            state = _fold_batch(state, await anext(batches))[0]
    else:
        state = await while_connected(request, _folded(state, batches))
    return _json(state, ignored=body.ignored())


@router.get(
    "/{response_id}",
    responses=ANSWER,
    response_class=Response,
)
async def retrieve_response(
    response_id: str,
    parts: PartsDep,
    caller: Asker,
    stream: Annotated[bool, Query()] = False,  # noqa: FBT002  # a query parameter
    starting_after: Annotated[int, Query(ge=0, le=2**31 - 1)] | None = None,
) -> Response:
    """Return a response as it stands, or stream its events after a sequence number."""
    leg = _leg(response_id)
    if not stream:
        return _json(await _as_it_stands(parts, caller, leg))
    batches = await opened(parts.streams.watch(caller.principal, leg.run_id, leg.after))
    after = -1 if starting_after is None else starting_after
    chunks = _events(State(id=str(leg)), batches, after=after)
    return stream_reply(chunks, parts, caller, farewell=_error_frame(STOPPED))


@router.post(
    "/{response_id}/cancel",
    responses=ANSWER,
    response_class=Response,
)
async def cancel_response(response_id: str, request: Request, parts: PartsDep, caller: Asker) -> Response:
    """Stop a response and return it once it has stopped."""
    leg = _leg(response_id)
    await parts.streams.cancel(caller.principal, leg.run_id)
    batches = parts.streams.watch(caller.principal, leg.run_id, leg.after)
    return _json(await while_connected(request, _folded(State(id=str(leg)), batches)))


async def _open_leg(
    body: ResponsesRequest, parts: Parts, caller: Caller, idempotency_key: str
) -> tuple[ResponseId, Batches]:
    """Start or resume the run; return the leg's id and its events."""
    resume = to_resume(body)
    if resume is not None:
        batches = await opened(parts.streams.resume(caller.principal, resume))
        first = await _first(batches)
        leg = ResponseId(run_id=resume.run_id, after=first[0].sequence - 1)
        return leg, _again(first, batches)
    start = bound_to_key(to_start(body, await _conversation(body, parts, caller)), caller)
    start.request_id = request_id(idempotency_key, parts)
    batches = await opened(parts.streams.start(caller.principal, start))
    first = await _first(batches)
    return ResponseId(run_id=first[0].run_id), _again(first, batches)


async def _first(batches: Batches) -> Batch:
    first = await anext(batches, None)
    if first is None:
        raise Unavailable("the run gave no event; try again", retry_after=1)
    return first


async def _again(first: Any, rest: Batches) -> Batches:
    async with aclosing(rest):
        yield first
        async for batch in rest:
            yield batch


async def _conversation(body: ResponsesRequest, parts: Parts, caller: Caller) -> str:
    """Return the conversation to go on with, by its id or by the response before."""
    if body.previous_response_id is None:
        return conversation_of(body)
    run = await run_of(parts, caller, _leg(body.previous_response_id).run_id)
    if not run.conversation_id:
        raise NotContinued(
            f"'{body.previous_response_id}' was answered without being stored; send the whole input again",
            metadata={"param": "previous_response_id"},
        )
    return run.conversation_id


async def _as_it_stands(parts: Parts, caller: Caller, leg: ResponseId) -> State:
    state = State(id=str(leg))
    async with aclosing(parts.streams.watch(caller.principal, leg.run_id, leg.after, replay=True)) as batches:
        async for batch in batches:
            state, _ = _fold_batch(state, batch)
    return state


async def _folded(state: State, batches: Batches) -> State:
    async with aclosing(batches):
        async for batch in batches:
            state, _ = _fold_batch(state, batch)
            if state.ended:
                break
    return state


async def _events(state: State, batches: Batches, *, after: int) -> AsyncGenerator[bytes]:
    """Yield the frames numbered above `after`; a failure of ours is an `error` event."""
    try:
        async with aclosing(batches):
            async for batch in batches:
                state, frames = _fold_batch(state, batch)
                chunk = b"".join(_sse(frame) for frame in frames if frame["sequence_number"] > after)
                if state.ended:
                    yield Last(chunk)
                    return
                if chunk:
                    yield chunk
    except Exception as error:  # noqa: BLE001  # the response has begun: the failure can only be its last event
        yield Last(_error_frame(problem_of(error), state.number))


def _fold_batch(state: State, batch: Any) -> tuple[State, list[dict[str, Any]]]:
    frames: list[dict[str, Any]] = []
    for event in batch:
        state, more = wire.fold(state, event)
        frames += more
    return state, frames


def _sse(frame: dict[str, Any]) -> bytes:
    return b"event: %s\ndata: %s\n\n" % (frame["type"].encode(), dumps(frame))


def _error_frame(problem: Problem, number: int = 0) -> bytes:
    error = error_object(problem)
    frame = {"type": "error", "sequence_number": number, "code": error["code"], "message": error["message"]}
    return _sse({**frame, "param": error["param"]})


def _json(state: State, *, ignored: list[str] | None = None) -> Response:
    value = response(state)
    value["proctor"]["ignored"] = ignored or []
    return Response(dumps(value), media_type="application/json")


def _leg(response_id: str) -> ResponseId:
    leg = parse_response_id(response_id)
    if leg is None:
        raise ResponseNotFound(f"there is no response '{response_id[:100]}'", metadata={"param": "response_id"})
    return leg


def _canceller(parts: Parts, caller: Caller) -> Callable[[str], None]:
    def cancel(run_id: str) -> None:
        parts.background.spawn(parts.streams.cancel(caller.principal, run_id), "cancel a run whose client left")

    return cancel

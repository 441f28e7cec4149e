"""`POST /v1/chat/completions`: OpenAI's Chat Completions over a run."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Header, Request, Response

from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.auth import Caller
from services.gateway.bodies.chat import ChatRequest, Resume, to_run
from services.gateway.dependencies import Parts, PartsDep
from services.gateway.openai_errors import error_object
from services.gateway.problems import Problem, problem_of
from services.gateway.projections import chat_completions as chat
from services.gateway.protojson import dumps
from services.gateway.replies import opened, stream_reply
from services.gateway.routes.runs import bound_to_key, idempotent, request_id
from services.gateway.sse import Last, data
from services.gateway.streams import Batches
from services.gateway.waiting import abandoned, while_connected

router = APIRouter(prefix="/v1/chat", tags=[openapi.OPENAI_TAG])

DONE = b"data: [DONE]\n\n"
STOPPED = Problem(status=503, reason="UNAVAILABLE", detail="the server ended this stream; send the request again")
FAREWELL = data({"error": error_object(STOPPED)}) + DONE


@router.post(
    "/completions",
    responses=openapi.streams("Chunks, `[DONE]` last.", or_json="A chat.completion, without `stream`."),
    response_class=Response,
)
async def create_completion(
    body: ChatRequest,
    request: Request,
    parts: PartsDep,
    caller: Asker,
    idempotency_key: Annotated[str, Header(max_length=100)] = "",
) -> Response:
    """Answer a chat; `model` names a model or, as `agent/<name>`, an agent."""
    wait = (body.proctor.approvals or parts.settings.chat_approvals) == "wait"
    options = chat.Options(
        model=body.model,
        include_usage=bool(body.stream_options and body.stream_options.include_usage),
        footnotes=body.proctor.footnotes,
        structured=(body.response_format or {}).get("type", "text") != "text",
        wait_for_approvals=wait,
        ignored=tuple(body.ignored()),
    )
    with idempotent(idempotency_key):
        batches = await opened(_events(body, parts, caller, idempotency_key, wait_for_approvals=wait))
    state = chat.State(options=options)
    if body.stream:
        return stream_reply(_chunks(state, batches), parts, caller, farewell=FAREWELL)
    state = await while_connected(request, _folded(state, batches))
    if state.error is not None:
        return Response(dumps({"error": state.error}), status_code=state.error_status, media_type="application/json")
    return Response(dumps(chat.completion(state)), media_type="application/json")


def _events(
    body: ChatRequest, parts: Parts, caller: Caller, idempotency_key: str, *, wait_for_approvals: bool
) -> Batches:
    """Return the events of the run that is started or resumed; it is cancelled when nobody can come back for it."""
    run = to_run(body, wait_for_approvals=wait_for_approvals)
    if isinstance(run, Resume):
        batches = parts.streams.resume(caller.principal, run.request)
    else:
        start = bound_to_key(run, caller)
        start.request_id = request_id(idempotency_key, parts)
        batches = parts.streams.start(caller.principal, start)
    if idempotency_key:
        return batches

    def cancel(run_id: str) -> None:
        parts.background.spawn(parts.streams.cancel(caller.principal, run_id), "cancel a run whose client left")

    return abandoned(batches, cancel)


async def _folded(state: chat.State, batches: Batches) -> chat.State:
    async with aclosing(batches):
        async for batch in batches:
            for event in batch:
                state, _ = chat.fold(state, event)
            if state.ended:
                break
    return chat.unfinished(state)[0]


async def _chunks(state: chat.State, batches: Batches) -> AsyncGenerator[bytes]:
    """Yield the chunks of each batch at once, and `[DONE]` whatever happens."""
    try:
        async with aclosing(batches):
            async for batch in batches:
                lines: list[bytes] = []
                for event in batch:
                    state, frames = chat.fold(state, event)
                    lines += map(data, frames)
                if state.ended:
                    yield Last(b"".join((*lines, DONE)))
                    return
                if lines:
                    yield b"".join(lines)
        last = chat.unfinished(state)[1]
    except Exception as error:  # noqa: BLE001  # the response has begun: the failure can only be its last chunk
        last = [{"error": error_object(problem_of(error))}]
    yield Last(b"".join((*map(data, last), DONE)))

"""`/v1/ui/chat`: the chat transport of Vercel's AI SDK."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Path, Response

from proctor.orchestrator.v1 import run_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.auth import Caller
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.bodies.runs import duration
from services.gateway.bodies.ui import CHAT_LABEL, UiChat, digest_of, steps_of, to_resume, to_start
from services.gateway.dependencies import Parts, PartsDep
from services.gateway.problems import problem_of
from services.gateway.projections import ui_messages as ui
from services.gateway.replies import opened, stream_reply
from services.gateway.routes.runs import bound_to_key
from services.gateway.sse import EventStream, Last, data
from services.gateway.streams import Batches

router = APIRouter(prefix="/v1/ui/chat", tags=["ui"])

ChatId = Annotated[str, Path(min_length=1, max_length=128)]
DONE = b"data: [DONE]\n\n"
PROTOCOL = {"x-vercel-ai-ui-message-stream": "v1"}
STOPPED = {"type": "error", "errorText": "the server ended this stream; take it up again"}
ACTIVE = (pb.RunState.RUN_STATE_QUEUED, pb.RunState.RUN_STATE_RUNNING)
# How far back a chat's active run is looked for.
LOOK_BACK = 100
CHUNKS = "UI message chunks, `[DONE]` last."


@router.post("", responses=openapi.streams(CHUNKS), response_class=Response)
async def chat(body: UiChat, parts: PartsDep, caller: Asker) -> Response:
    """Answer a chat, or go on after its approvals were answered. The run goes on when the client leaves."""
    resume = to_resume(body)
    if resume is not None:
        batches = parts.streams.resume(caller.principal, resume)
    else:
        start = bound_to_key(to_start(body), caller)
        # A new answer to the same messages is another run.
        attempt = parts.ids.new() if body.trigger == "regenerate-message" else digest_of(body)
        start.request_id = f"ui:{attempt}"
        batches = parts.streams.start(caller.principal, start)
    return _reply(_chunks(ui.State(steps=steps_of(body)), await opened(batches)), parts, caller)


@router.get(
    "/{chat_id}/stream",
    responses={**openapi.streams(CHUNKS), 204: {"description": "Nothing runs in this chat."}},
    response_class=Response,
)
async def resume_stream(chat_id: ChatId, parts: PartsDep, caller: Asker) -> Response:
    """Take up the stream of the chat's active run from its first event; 204 when none is active."""
    run_id = await _active_run(parts, caller, chat_id)
    if not run_id:
        return Response(status_code=204)
    batches = await opened(parts.streams.watch(caller.principal, run_id, hold=duration(0)))
    return _reply(_chunks(ui.State(through_pauses=True), batches), parts, caller)


@router.delete("/{chat_id}/stream", status_code=204)
async def stop(chat_id: ChatId, parts: PartsDep, caller: Asker) -> Response:
    """Stop the chat's active run; leaving its stream does not."""
    run_id = await _active_run(parts, caller, chat_id)
    if run_id:
        await parts.streams.cancel(caller.principal, run_id)
    return Response(status_code=204)


async def _active_run(parts: Parts, caller: Caller, chat_id: str) -> str:
    request = pb.ListRunsRequest(page_size=LOOK_BACK, states=ACTIVE)
    reply = await parts.backends.runs.ListRuns(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
    mine = (run for run in reply.runs if run.labels.get(CHAT_LABEL) == chat_id and run.user == caller.principal.user)
    return next((run.run_id for run in mine), "")


def _reply(chunks: AsyncGenerator[bytes], parts: Parts, caller: Caller) -> EventStream:
    farewell = data(STOPPED) + DONE
    reply = stream_reply(chunks, parts, caller, farewell=farewell)
    reply.headers.update(PROTOCOL)
    return reply


async def _chunks(state: ui.State, batches: Batches) -> AsyncGenerator[bytes]:
    """Yield the chunks of each batch at once, and `[DONE]` whatever happens."""
    try:
        async with aclosing(batches):
            async for batch in batches:
                lines: list[bytes] = []
                for event in batch:
                    state, frames = ui.fold(state, event)
                    lines += map(data, frames)
                if state.ended:
                    yield Last(b"".join((*lines, DONE)))
                    return
                if lines:
                    yield b"".join(lines)
        last = ui.finish(state)
    except Exception as error:  # noqa: BLE001  # the response has begun: the failure can only be its last chunk
        last = [{"type": "error", "errorText": problem_of(error).detail}]
    yield Last(b"".join((*map(data, last), DONE)))

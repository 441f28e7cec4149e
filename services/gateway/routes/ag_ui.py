"""`/v1/ag-ui`: an agent for AG-UI clients."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Annotated

from fastapi import APIRouter, Query, Response

from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.bodies.ag_ui import AgInput, to_resume, to_start
from services.gateway.dependencies import PartsDep
from services.gateway.problems import problem_of
from services.gateway.projections import ag_ui
from services.gateway.replies import opened, stream_reply
from services.gateway.routes.runs import bound_to_key
from services.gateway.sse import Last, data
from services.gateway.streams import Batches

router = APIRouter(prefix="/v1/ag-ui", tags=["ui"])

STOPPED = {
    "type": "RUN_ERROR",
    "message": "the server ended this stream; run again to take it up",
    "code": "UNAVAILABLE",
}


@router.post("", responses=openapi.streams("AG-UI events as `data:` lines."), response_class=Response)
async def run_agent(
    body: AgInput,
    parts: PartsDep,
    caller: Asker,
    model: Annotated[str, Query(max_length=256, description="A model, or `agent/<name>`.")] = "",
) -> Response:
    """Run an agent over a thread's messages, or answer its interrupts. The same runId joins the run it began."""
    resume = to_resume(body)
    if resume is not None:
        batches = parts.streams.resume(caller.principal, resume)
    else:
        start = bound_to_key(to_start(body, model), caller)
        start.request_id = f"agui:{body.runId}"
        batches = parts.streams.start(caller.principal, start)
    state = ag_ui.State(thread_id=body.threadId, run_id=body.runId)
    farewell = data(STOPPED)
    return stream_reply(_events(state, await opened(batches)), parts, caller, farewell=farewell)


async def _events(state: ag_ui.State, batches: Batches) -> AsyncGenerator[bytes]:
    """Yield the events of each batch at once; a failure of ours is the wire's RUN_ERROR."""
    try:
        async with aclosing(batches):
            async for batch in batches:
                lines: list[bytes] = []
                for event in batch:
                    state, frames = ag_ui.fold(state, event)
                    lines += map(data, frames)
                if state.ended:
                    yield Last(b"".join(lines))
                    return
                if lines:
                    yield b"".join(lines)
    except Exception as error:  # noqa: BLE001  # the response has begun: the failure can only be its last event
        problem = problem_of(error)
        last = {"type": "RUN_ERROR", "message": problem.detail, "code": problem.reason}
        yield Last(data(last))

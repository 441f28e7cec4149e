"""After a take-over: which model calls had been shown in part when their owner died."""

from __future__ import annotations

from proctor.orchestrator.v1 import events_pb2
from services.orchestrator.journal.ports import EventLog

_PAGE = 1000
_PAGE_BYTES = 4 * 1024 * 1024
_SHOWN = ("answer_delta", "thinking_delta", "tool_call_delta")


async def unfinished_calls(log: EventLog, run_id: str, after: int) -> tuple[str, ...]:
    """Return ids of calls with pieces after `after` and neither an end nor a retraction, in order."""
    seen: dict[str, None] = {}
    while page := await log.events(run_id, after, limit=_PAGE, max_bytes=_PAGE_BYTES):
        for stamped in page:
            event = events_pb2.RunEvent.FromString(stamped.payload)
            arm = event.WhichOneof("event")
            if arm in _SHOWN:
                seen[getattr(event, arm).model_call_id] = None
            elif arm == "model_call_finished":
                seen.pop(event.model_call_finished.model_call_id, None)
            elif arm == "answer_retracted":
                seen.pop(event.answer_retracted.model_call_id, None)
        after = page[-1].sequence
    return tuple(seen)

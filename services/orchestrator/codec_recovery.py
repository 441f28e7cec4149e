"""After a take-over: had the dead owner begun a model call, so that a client may have seen a part of its text?"""

from __future__ import annotations

from proctor.orchestrator.v1 import events_pb2
from services.orchestrator.journal.ports import EventLog

_PAGE = 1000
_PAGE_BYTES = 4 * 1024 * 1024


async def call_had_begun(log: EventLog, run_id: str, after: int) -> bool:
    """Return whether the events after a checkpoint show a model call of the run itself without its end.

    The stage is committed before any text of the call is shown, so text that was shown and then lost with its owner
    counts too. What steps say is no part of the answer.
    """
    begun = False
    while page := await log.events(run_id, after, limit=_PAGE, max_bytes=_PAGE_BYTES):
        for stamped in page:
            event = events_pb2.RunEvent.FromString(stamped.payload)
            if event.step_id:
                continue
            match event.WhichOneof("event"):
                case "stage_changed":
                    begun = begun or event.stage_changed.stage == events_pb2.STAGE_THINKING
                case "model_call_finished" | "answer_retracted":
                    begun = False
        after = page[-1].sequence
    return begun

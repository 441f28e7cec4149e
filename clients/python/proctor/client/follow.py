"""How far a stream has come and whether to try again: the part of following that needs no network."""

from __future__ import annotations

from collections.abc import Sequence

from proctor.client.answer import TERMINAL, kind_of
from proctor.orchestrator.v1.events_pb2 import RunEvent
from proctor.orchestrator.v1.run_service_pb2 import Run, RunState

# Seconds between tries without progress; after the last one the loss is the caller's to see.
BACKOFF = (0.1, 0.2, 0.5, 1.0, 2.0, 4.0, 8.0, 8.0, 8.0)


class Position:
    """The last sequence seen of a run, and the tries since."""

    def __init__(self, run_id: str = "", after: int = 0, backoff: Sequence[float] = BACKOFF) -> None:
        self.run_id = run_id
        self.after = after
        self.ended = False
        # Whether the last event left nothing to come until somebody acts: the run ended, or it waits for a decision.
        self.settled = False
        self._backoff = backoff
        self._tries = 0

    def advance(self, event: RunEvent) -> bool:
        """Move past `event`; False when it was seen before."""
        if event.sequence <= self.after:
            return False
        self.run_id, self.after = event.run_id, event.sequence
        self.ended = kind_of(event) in TERMINAL
        self.settled = self.ended or kind_of(event) == "run_paused"
        self._tries = 0
        return True

    def is_past(self, run: Run) -> bool:
        """Whether nothing more is to be read now of a run whose stream ended in order.

        Servers end streams in order when they stop or when a stream has reached its largest age; the run goes on.
        """
        working = run.state in {RunState.RUN_STATE_QUEUED, RunState.RUN_STATE_RUNNING}
        return not working and run.last_sequence <= self.after

    def next_wait(self) -> float | None:
        """Return how long to wait before the next try, None when it is enough."""
        if self._tries >= len(self._backoff):
            return None
        wait = self._backoff[self._tries]
        self._tries += 1
        return wait

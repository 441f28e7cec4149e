"""The one clock of a model call: measured here, shown in the span, the metrics, the journal and the log."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta

from services.chassis.clock import Clock
from services.orchestrator.models.ports import CallTiming


@dataclass(slots=True, kw_only=True)
class Attempt:
    """One try at one model; times in seconds since the call started. `error` is its reason, empty when it succeeded."""

    model: str
    started: float
    first: float | None = None
    last: float = 0.0
    chunks: int = 0
    ended: float | None = None
    error: str = ""


class CallClock:
    """Measures one logical call, over all its attempts.

    The layers report what happens (`begin`, `arrived`, `token`, `end`); all times derive from those readings. The first
    token is the first non-empty piece of thinking, text or call: chunks that only carry a role do not count.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._start = clock.monotonic()
        self._queued = 0.0
        self._queued_before_first = 0.0
        self._last_arrival = self._start
        self._attempts: list[Attempt] = []
        self.started_at: datetime = clock.now()
        self.first: float | None = None
        self.longest_stall = 0.0

    @property
    def elapsed(self) -> float:
        """Seconds since the call started, waiting in the queue left out."""
        return self._clock.monotonic() - self._start - self._queued

    @property
    def mean_gap(self) -> float | None:
        """Mean seconds between two chunks of the last attempt, None when there were fewer than two."""
        attempt = self._attempts[-1] if self._attempts else None
        if attempt is None or attempt.first is None or attempt.chunks < 2:
            return None
        return (attempt.last - attempt.first) / (attempt.chunks - 1)

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """Every attempt so far, in order."""
        return tuple(self._attempts)

    @property
    def number(self) -> int:
        """Number of the attempt under way, from 1; 0 before the first."""
        return len(self._attempts)

    @property
    def has_begun(self) -> bool:
        """Whether the attempt under way has brought its first token."""
        return self._attempts[-1].first is not None

    def queued_for(self, seconds: float) -> None:
        """Report time spent waiting for a free place."""
        self._queued += seconds
        if self.first is None:
            self._queued_before_first += seconds

    def begin(self, model: str) -> Attempt:
        """Start an attempt."""
        self._last_arrival = self._clock.monotonic()
        attempt = Attempt(model=model, started=self._last_arrival - self._start)
        self._attempts.append(attempt)
        return attempt

    def arrived(self) -> None:
        """Report bytes from the endpoint. The longest stall is the longest gap between two arrivals after a token.

        What came while the stream was not read arrives when it is read: of a process with many streams, stalls are told
        too long by a pause of theirs at most (`Coalescing.longest`).
        """
        now = self._clock.monotonic()
        if self.has_begun:
            gap = now - self._last_arrival
            self.longest_stall = max(self.longest_stall, gap)
        self._last_arrival = now

    def token(self, chunks: int = 1) -> None:
        """Report a non-empty piece that came with the last arrival, in so many chunks of the endpoint."""
        at = self._last_arrival - self._start
        attempt = self._attempts[-1]
        attempt.chunks += chunks
        attempt.last = at
        if attempt.first is None:
            attempt.first = at
            if self.first is None:
                self.first = at - self._queued_before_first

    def end(self, error: str = "") -> None:
        """End the attempt under way; a second end of the same attempt changes nothing."""
        attempt = self._attempts[-1]
        if attempt.ended is None:
            attempt.ended = self._clock.monotonic() - self._start
            attempt.error = error

    def at(self, seconds: float) -> datetime:
        """Return the wall time at `seconds` after the start."""
        return self.started_at + timedelta(seconds=seconds)

    def timing(self) -> CallTiming:
        """Return the measurement as of now."""
        return CallTiming(
            started_at=self.started_at,
            queued=timedelta(seconds=self._queued),
            time_to_first_token=None if self.first is None else timedelta(seconds=self.first),
            total=timedelta(seconds=self.elapsed),
            longest_stall=timedelta(seconds=self.longest_stall),
            attempts=max(1, len(self._attempts)),
        )

    def phases(self, timing: CallTiming) -> dict[str, float]:
        """Return what the seconds of `timing` were spent on; they sum to its queue and total.

        `retry` is what passed before the last attempt began, `first_chunk` what that one took to its first piece, or to
        its end without one. A call that never got to an attempt spent all its time in the queue.
        """
        queued = timing.queued.total_seconds()
        ended = queued + timing.total.total_seconds()
        if not self._attempts:
            return {"queue": ended}
        last = self._attempts[-1]
        first = ended if last.first is None else last.first
        return {
            "queue": queued,
            "retry": max(0.0, last.started - queued),
            "first_chunk": first - last.started,
            "generation": ended - first,
        }

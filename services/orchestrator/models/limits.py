"""Time limits of a call: the longest silence, and the cap on the whole."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from types import TracebackType
from typing import Protocol

from services.chassis.clock import Clock
from services.orchestrator.models.errors import ModelError, ModelStalled, ModelTimeout
from services.orchestrator.models.timing import CallClock


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """`gap`: longest time without a byte. `total`: cap on the logical call, attempts and backoff included."""

    gap: timedelta = timedelta(seconds=180)
    total: timedelta = timedelta(seconds=300)


class Timer(Protocol):
    """Something that will happen unless cancelled."""

    def cancel(self) -> None: ...


# Calls a function after so many seconds.
Later = Callable[[float, Callable[[], None]], Timer]


def on_the_loop(delay: float, action: Callable[[], None]) -> Timer:
    """Run `action` on the running loop after `delay` seconds."""
    return asyncio.get_running_loop().call_later(delay, action)


class Watchdog:
    """Cuts the waits of one attempt that break a limit.

    Each wait for the endpoint stands in `with watchdog:`; when a limit passes meanwhile, the wait is cancelled and
    ModelStalled or ModelTimeout is raised in its place. Time that the consumer takes between waits cannot be cut, but
    the next wait raises at once when the cap has passed. One timer serves the attempt: a wait itself sets none.
    """

    def __init__(self, model: str, limits: Limits, call: CallClock, clock: Clock, later: Later = on_the_loop) -> None:
        self._model = model
        self._gap = limits.gap.total_seconds()
        self._total = limits.total.total_seconds()
        self._call = call
        self._clock = clock
        self._later = later
        self._task: asyncio.Task[object] | None = None
        self._since = 0.0
        self._breach: ModelError | None = None
        self._cancelling = 0
        self._timer: Timer = later(self._next_check(), self._check)

    def stop(self) -> None:
        """Set no more timers."""
        self._timer.cancel()

    def __enter__(self) -> None:
        if self._call.elapsed >= self._total:
            raise self._timeout()
        self._since = self._clock.monotonic()
        task = asyncio.current_task()
        assert task is not None
        self._cancelling = task.cancelling()
        self._task = task

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        task, self._task = self._task, None
        breach, self._breach = self._breach, None
        if breach is None or kind is not asyncio.CancelledError or task is None:
            return
        # A cancellation from outside that came at the same time wins.
        if task.uncancel() <= self._cancelling:
            raise breach from None

    def _next_check(self) -> float:
        """Return the seconds until a limit may next be broken."""
        until_total = self._total - self._call.elapsed
        if self._task is None:
            return min(self._gap, until_total)
        return min(self._gap - (self._clock.monotonic() - self._since), until_total)

    def _check(self) -> None:
        waits = self._task is not None
        if waits and self._call.elapsed >= self._total:
            self._cut(self._timeout())
        elif waits and self._clock.monotonic() - self._since >= self._gap:
            self._cut(ModelStalled(self._model, f"sent nothing for {self._gap:g} s"))
        elif (seconds := self._next_check()) > 0:
            self._timer = self._later(seconds, self._check)

    def _cut(self, breach: ModelError) -> None:
        assert self._task is not None
        self._breach = breach
        self._task.cancel()

    def _timeout(self) -> ModelError:
        return ModelTimeout(self._model, f"took longer than {self._total:g} s")

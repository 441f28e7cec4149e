"""A bound on the calls that one model serves at once; waiting for a place is timed apart."""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from services.chassis.clock import Clock
from services.orchestrator.models.layers import Events, TimedModel
from services.orchestrator.models.ports import ModelRequest
from services.orchestrator.models.timing import CallClock


class Admitted:
    """Lets `places` calls through at a time, in the order in which they came."""

    def __init__(self, inner: TimedModel, places: int, clock: Clock) -> None:
        self._inner = inner
        self._places = asyncio.Semaphore(places)
        self._clock = clock

    async def stream(self, request: ModelRequest, call: CallClock) -> Events:
        """Wait for a place, then yield the inner model's reply."""
        waited_from = self._clock.monotonic()
        async with self._places:
            call.queued_for(self._clock.monotonic() - waited_from)
            async with aclosing(self._inner.stream(request, call)) as events:
                async for event in events:
                    yield event

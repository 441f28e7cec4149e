"""A run's events as a client's stream: heartbeats while it is silent, and an end when it waits longer than `hold`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from datetime import timedelta

from services.orchestrator.domain.events import StampedEvent
from services.orchestrator.domain.run import EventsPruned
from services.orchestrator.journal.feed import Feed
from services.orchestrator.metrics import StreamMetrics


async def follow(
    feed: Feed,
    run_id: str,
    *,
    after: int,
    hold: timedelta | None,
    heartbeat: timedelta,
    live: bool = True,
) -> AsyncGenerator[tuple[StampedEvent, ...], None]:
    """Yield batches of events after `after`; an empty batch is a heartbeat.

    Ends after the terminal event. While the run is paused it ends once `hold` has passed; None waits for the decision,
    however long that takes (the request's own deadline bounds it).
    """
    loop = asyncio.get_running_loop()
    silence = heartbeat / timedelta(seconds=1)
    next_beat = loop.time() + silence
    deadline: float | None = None

    def idle() -> float:
        due = next_beat if deadline is None else min(next_beat, deadline)
        return max(due - loop.time(), 0.0)

    async with aclosing(feed.watch(run_id, after, live=live, idle=idle)) as batches:
        async for batch in batches:
            if batch:
                yield batch
                if hold is not None:
                    deadline = loop.time() + hold / timedelta(seconds=1) if batch[-1].pause else None
                    if deadline is not None and not hold:
                        return
            elif deadline is not None and loop.time() >= deadline:
                return
            elif loop.time() >= next_beat:
                yield ()
            else:
                continue
            next_beat = loop.time() + silence


async def counted(
    batches: AsyncGenerator[tuple[StampedEvent, ...], None], metrics: StreamMetrics, *, after: int, known: int
) -> AsyncGenerator[tuple[StampedEvent, ...], None]:
    """Yield `batches` and count: a reader that came back, the events up to `known` it is sent again, a gap."""
    if after:
        metrics.resumed()
    try:
        async with aclosing(batches):
            async for batch in batches:
                if batch and batch[0].sequence <= known:
                    metrics.replayed(sum(event.sequence <= known for event in batch))
                yield batch
    except EventsPruned:
        metrics.gap()
        raise

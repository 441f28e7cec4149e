"""Retry of one model, only while nothing has come out."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass

from services.orchestrator.models.errors import ModelError
from services.orchestrator.models.layers import Events, TimedModel
from services.orchestrator.models.limits import Limits
from services.orchestrator.models.ports import ModelRequest
from services.orchestrator.models.timing import CallClock


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """At most `retries` more tries, after about `first_delay` seconds and twice as many each time.

    A server's `Retry-After` goes before; one longer than `longest_wait` is not waited for: another model serves sooner.
    """

    retries: int = 2
    first_delay: float = 0.5
    longest_wait: float = 20.0


class Retrying:
    """Tries a model again when it fails before its first token and trying again may help."""

    def __init__(
        self,
        inner: TimedModel,
        policy: RetryPolicy,
        limits: Limits,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self._inner = inner
        self._policy = policy
        self._total = limits.total.total_seconds()
        self._sleep = sleep
        self._jitter = jitter

    async def stream(self, request: ModelRequest, call: CallClock) -> Events:
        """Yield the first reply that begins; later failures pass through."""
        failures = 0
        while True:
            try:
                async with aclosing(self._inner.stream(request, call)) as events:
                    async for event in events:
                        yield event
            except ModelError as error:
                delay = self._delay(error, failures, call)
                if delay is None:
                    raise
            else:
                return
            failures += 1
            await self._sleep(delay)

    def _delay(self, error: ModelError, failures: int, call: CallClock) -> float | None:
        """Return how long to wait before the next try, None for no next try."""
        if error.after_first_token or not error.retryable or failures >= self._policy.retries:
            return None
        if error.retry_after is not None:
            delay = error.retry_after
        else:
            # Between half and the whole of the step, so that callers that failed together come back apart.
            delay = self._policy.first_delay * 2**failures * (0.5 + self._jitter() / 2)
        if delay > self._policy.longest_wait or call.elapsed + delay >= self._total:
            return None
        return delay

"""Running a tool that may be slow, deaf or broken without letting it hold the run."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from datetime import timedelta
from typing import Any, TypeVar

from opentelemetry import trace

_log = logging.getLogger(__name__)
T = TypeVar("T")


class ToolOverdue(Exception):
    """The tool did not finish within its deadline."""


class Executor:
    """Runs tools in tasks of their own. `linger` is how long a cancelled tool may clean up before it is abandoned."""

    def __init__(self, linger: timedelta = timedelta(milliseconds=500)) -> None:
        self._linger = linger / timedelta(seconds=1)
        # Tasks that ignored their cancellation, referenced until they end.
        self._abandoned: set[asyncio.Task[Any]] = set()

    async def run(self, work: Coroutine[Any, Any, T], span: trace.Span, deadline: timedelta) -> T:
        """Return what `work` returns, run under `span`, or raise ToolOverdue after `deadline`.

        When the deadline passes or the caller is cancelled, the work is cancelled too; work that ignores that is
        abandoned.
        """
        with trace.use_span(span, end_on_exit=False, record_exception=False, set_status_on_exception=False):
            task = asyncio.ensure_future(work)  # copies the context: the tool's spans become children of `span`
        try:
            done, _ = await asyncio.wait({task}, timeout=deadline / timedelta(seconds=1))
        except asyncio.CancelledError:
            await self._stop(task)
            raise
        if not done:
            await self._stop(task)
            raise ToolOverdue
        return task.result()

    async def _stop(self, task: asyncio.Task[Any]) -> None:
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=self._linger)
        if not done:
            _log.warning("a tool ignored its cancellation and was abandoned")
            self._abandoned.add(task)
        task.add_done_callback(self._forget)

    def _forget(self, task: asyncio.Task[Any]) -> None:
        self._abandoned.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that it is not reported as lost

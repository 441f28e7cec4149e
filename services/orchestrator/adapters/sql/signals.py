"""Hearing of other processes' changes where there is no other process: on SQLite."""

from __future__ import annotations

from collections.abc import Callable

from services.orchestrator.journal.ports import RunSignal


class NoSignals:
    """For a database that one process holds alone."""

    async def listen(self, heard: Callable[[RunSignal], None]) -> None:
        """Return at once: nothing will be heard."""

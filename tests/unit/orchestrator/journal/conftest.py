"""What the journal's tests share."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from services.chassis.clock import SystemClock
from services.orchestrator.adapters.sql.database import Database


@pytest.fixture
async def database(sqlite_url: str) -> AsyncIterator[Database]:
    """The orchestrator's database in a file of its own."""
    opened = await Database.open(sqlite_url, SystemClock())
    yield opened
    await opened.close()

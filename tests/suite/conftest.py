"""One running suite for each module of suite tests, with a scripted model."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.support.platform import Recorded, recorded_telemetry, test_platform
from tests.support.suite import Suite, suite
from tests.support.suite_steps import ingest_handbook
from tests.support.upstream import Upstream


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def upstream() -> AsyncIterator[Upstream]:
    async with Upstream() as server:
        yield server


@pytest.fixture(autouse=True)
def _fresh_script(upstream: Upstream) -> None:
    """What one test scripted and did not use must not answer the next one."""
    upstream.reset()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def recorded() -> Recorded:
    return recorded_telemetry()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running(upstream: Upstream, recorded: Recorded) -> AsyncIterator[Suite]:
    """All services but the sandbox, the handbook ingested."""
    platform = test_platform(telemetry=recorded.telemetry)
    async with suite(
        model=upstream.base_url, platform=platform, services=("approval", "retrieval", "orchestrator")
    ) as started:
        await ingest_handbook(started)
        yield started

"""Fixtures: a jail of each backend, kept for the whole session; every test must leave it fit for the next."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from services.sandbox.settings import Backend, CgroupMode
from tests.support.sandbox import Runner, running_jail, short_folder


@pytest_asyncio.fixture(scope="session", loop_scope="session", params=list(Backend), ids=lambda backend: backend.value)
async def runner(request: pytest.FixtureRequest) -> AsyncIterator[Runner]:
    """Run in the cold and in the warm backend."""
    with short_folder() as folder:
        async with running_jail(folder, request.param) as running:
            yield running


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def uncounted() -> AsyncIterator[Runner]:
    """Run without control groups, where rlimits and the watchdog must do."""
    with short_folder() as folder:
        async with running_jail(folder, Backend.WARM, cgroup=CgroupMode.NONE, allow_no_cgroup=True) as running:
            yield running

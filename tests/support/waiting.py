"""Waiting in tests for what happens by itself, without a fixed sleep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


async def until(condition: Callable[[], object]) -> None:
    """Return once the condition holds; raise TimeoutError after a minute."""
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)

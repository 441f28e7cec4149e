"""Many paced runs followed by the page's own modules over lines that keep breaking: nothing is lost or doubled."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path

import pytest

from tests.support.suite import suite
from tests.support.upstream import Upstream
from tests.support.upstream_script import Pause, Say, Turn

pytestmark = [pytest.mark.prove, pytest.mark.timeout(600)]

RUNS = 250
SOAK = Path(__file__).parent / "js" / "soak.mjs"
WORDS = tuple(f"w{number} " for number in range(80))
PACED = Turn(steps=tuple(step for word in WORDS for step in (Say(pieces=(word,)), Pause(seconds=0.1))))


async def test_250_paced_streams_over_breaking_lines_lose_nothing() -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("needs Node 20 or later: apt-get install nodejs")
    async with (
        Upstream(default=PACED) as upstream,
        suite(
            model=upstream.base_url,
            services=("approval", "retrieval", "orchestrator"),
            PROCTOR_GATEWAY_REQUESTS_PER_MINUTE="0",
        ) as running,
    ):
        process = await asyncio.create_subprocess_exec(
            node, str(SOAK), running.base_url, str(RUNS), "".join(WORDS), stdout=asyncio.subprocess.PIPE
        )
        output, _ = await process.communicate()
    told = json.loads(output)
    assert told["breaks"] > RUNS
    assert told | {"breaks": 0} == {
        "runs": RUNS, "breaks": 0, "completed": RUNS, "streamed": RUNS, "final": RUNS, "disorder": 0
    }  # fmt: skip

"""The examples of the documentation do what they say: each is run as it stands, against a suite with the handbook."""

from __future__ import annotations

import asyncio
import os
import re
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.support.suite import Suite, suite
from tests.support.suite_steps import ingest_handbook

pytestmark = pytest.mark.asyncio(loop_scope="module")
ROOT = Path(__file__).parents[2]
PAGES = ("quickstart", "fronts")
BLOCK = re.compile(r"^## (.+?)\n|^```(sh|python)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
RATE = "0.38"
# What each section's examples must print, in order; a section without any has no examples.
PRINTS = {
    "quickstart": {
        "Ask": ["run_completed", "RUN_STATE_COMPLETED"],
        "Bring your own documents": ["22:00"],
        "Give somebody a key": ['"key"'],
    },
    "fronts": {
        "Native events": ["run_completed", "run_completed"],
        "WebSocket": [RATE],
        "Chat Completions": [RATE],
        "Responses": [RATE],
        "AI SDK": [RATE],
        "AG-UI": [RATE],
        "Python": [RATE],
    },
}
HANDED_ON = ("PATH", "HOME", "LANG")


def examples(page: str) -> dict[str, list[tuple[str, str]]]:
    """Return the examples of a page, (language, text), by the section they stand in."""
    found: dict[str, list[tuple[str, str]]] = {}
    section = ""
    for heading, language, text in BLOCK.findall((ROOT / "docs" / f"{page}.md").read_text(encoding="utf-8")):
        if heading:
            section = heading
        else:
            found.setdefault(section, []).append((language, text))
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def running() -> AsyncIterator[Suite]:
    """A suite whose keyless reader answers; no proxy stands between it and the examples."""
    async with suite(services=("approval", "retrieval", "orchestrator")) as started:
        await ingest_handbook(started)
        yield started


async def printed(example: tuple[str, str], running: Suite, folder: Path) -> str:
    """Run an example in a folder of its own and return what it printed; only the address is another."""
    language, text = example
    program = text.replace("127.0.0.1:8080", running.base_url.removeprefix("http://"))
    command = ["bash", "-euo", "pipefail", "-c"] if language == "sh" else [sys.executable, "-c"]
    environ = {name: os.environ[name] for name in HANDED_ON if name in os.environ}
    process = await asyncio.create_subprocess_exec(
        *command,
        program,
        cwd=folder,
        env=environ | {"PYTHONPATH": f"{ROOT / 'protos/gen'}:{ROOT / 'clients/python'}"},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    out, _ = await asyncio.wait_for(process.communicate(), 60)
    assert process.returncode == 0, out.decode()
    return out.decode()


@pytest.mark.parametrize("page", PAGES)
async def test_every_example_is_looked_at(page: str) -> None:
    assert {section: len(found) for section, found in examples(page).items() if section} == {
        section: 1 if section == "Bring your own documents" else len(prints) for section, prints in PRINTS[page].items()
    }


@pytest.mark.parametrize(("page", "section"), [(page, section) for page in PAGES for section in PRINTS[page]])
async def test_an_example_does_what_it_says(page: str, section: str, running: Suite, tmp_path: Path) -> None:
    for example, expected in zip(examples(page)[section], PRINTS[page][section], strict=True):
        assert expected in await printed(example, running, tmp_path)

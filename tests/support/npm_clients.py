"""Stock clients from npm as subprocesses: programs beside a link to the packages that `make test` installed."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

VARIABLE = "PROCTOR_TEST_NODE_MODULES"
# Where `make test` puts what tests/clients/package.json pins.
INSTALLED = Path(__file__).parents[2] / ".stamps" / "clients" / "node_modules"
NODE_MODULES = Path(os.environ.get(VARIABLE) or INSTALLED)


def needs_package(name: str) -> pytest.MarkDecorator:
    """Return the mark that skips a test where Node or the package is missing, and says what to do."""
    return pytest.mark.skipif(
        not (shutil.which("node") and (NODE_MODULES / name).is_dir()),
        reason=f"needs Node and npm's `{name}`: install npm and run `make test`, or name a folder by {VARIABLE}",
    )


async def run_program(program: str, folder: Path, **variables: str) -> list[Any]:
    """Run an ES module under Node and return the JSON values it printed, one a line; it may take a minute."""
    (folder / "node_modules").symlink_to(NODE_MODULES.resolve())
    (folder / "program.mjs").write_text(program)
    process = await asyncio.create_subprocess_exec(
        "node",
        str(folder / "program.mjs"),
        env={**os.environ, **variables},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        stdout, stderr = await asyncio.wait_for(process.communicate(), 60)
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, stderr.decode()
    return [json.loads(line) for line in stdout.decode().splitlines()]

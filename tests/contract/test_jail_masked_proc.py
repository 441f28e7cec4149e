"""The one degradation that is allowed: where the host masks its /proc, code finds an empty one."""

from __future__ import annotations

import json
import os

import pytest

from tests.support import masked_proc
from tests.support.sandbox import needs_environment

pytestmark = [
    pytest.mark.prove,
    needs_environment,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can cover a part of /proc"),
]

PROGRAM = r"""
import asyncio, json
from services.sandbox.settings import Backend
from tests.support.sandbox import running_jail, short_folder

async def look(runner):
    return {
        "proc": (await runner.run("import os; print(os.listdir('/proc'))")).text.strip(),
        "uid": (await runner.run("import os; print(os.getuid() == 0, os.getpid())")).text.strip(),
        "mount": await runner.errno("attempt(syscall, 165, 0, 0, 0, 0, 0)"),
        "unshare": await runner.errno("attempt(syscall, 272, 0x10000000)"),
        "write": await runner.errno("attempt(open, '/proc/x', 'w')"),
        "neighbours": (await runner.run("import os; os.kill(-1, 9)")).finished.exit_code,
        "wall": (await runner.run("while True: pass", wall=0.3)).status.value,
        "inodes": await runner.errno("attempt(lambda: [open(f'/tmp/{n}', 'w').close() for n in range(5000)])"),
    }

async def main():
    found = {}
    for backend in Backend:
        with short_folder() as folder:
            async with running_jail(folder, backend) as runner:
                found[backend.value] = await look(runner)
    print(json.dumps(found))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, object]]:
    done = masked_proc.run(PROGRAM)
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, object]] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("backend", ["cold", "warm"])
def test_everything_else_holds_with_an_empty_proc(found: dict[str, dict[str, object]], backend: str) -> None:
    seen = found[backend]
    assert seen["proc"] == "[]"
    assert seen["uid"] == "False 2"
    assert (seen["mount"], seen["unshare"], seen["write"]) == ("EPERM", "EPERM", "EROFS")
    assert seen["wall"] == "TIMEOUT"
    assert seen["inodes"] == "ENOSPC"

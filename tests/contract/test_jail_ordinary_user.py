"""The jail when the service is not root: no user to drop to, no control group to write."""

from __future__ import annotations

import json
import os

import pytest

from tests.support import ordinary_user
from tests.support.sandbox import needs_environment

pytestmark = [
    pytest.mark.prove,
    needs_environment,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else"),
]

PROGRAM = r"""
import asyncio, json, os
from services.sandbox.settings import Backend
from tests.support.sandbox import running_jail, short_folder

BURN = "import os\nfor _ in range(3): os.fork()\nwhile True: pass"

async def look(runner):
    return {
        "host": str(os.getuid()),
        "cgroup": (await runner.jail.isolation()).cgroup,
        "uid": (await runner.run("import os; print(os.getuid())")).text.strip(),
        "home": await runner.errno(f"attempt(os.stat, {os.getcwd()!r})"),
        "memory": (await runner.run("b = []\nwhile True: b.append(bytearray(10**7))", memory=100 << 20)).errors[-40:],
        "cpu": (await runner.run(BURN, cpu=0.5, wall=20)).status.value,
        "wall": (await runner.run("import time; time.sleep(60)", wall=0.3)).status.value,
        "capabilities": (await runner.run(
            "print([l.split()[1] for l in open('/proc/self/status') if l.startswith('CapEff')])")).text.strip(),
    }

async def main():
    found = {}
    for backend in Backend:
        with short_folder() as folder:
            async with running_jail(folder, backend, allow_no_cgroup=True) as runner:
                found[backend.value] = await look(runner)
    print(json.dumps(found))

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def found() -> dict[str, dict[str, str]]:
    done = ordinary_user.run(PROGRAM)
    assert done.returncode == 0, done.stderr
    result: dict[str, dict[str, str]] = json.loads(done.stdout)
    return result


@pytest.mark.parametrize("backend", ["cold", "warm"])
def test_an_ordinary_user_gets_the_same_isolation(found: dict[str, dict[str, str]], backend: str) -> None:
    seen = found[backend]
    assert seen["host"] == str(ordinary_user.UID)
    assert seen["uid"] == str(ordinary_user.UID)
    assert seen["home"] == "ENOENT"
    assert seen["capabilities"] == "['0000000000000000']"


@pytest.mark.parametrize("backend", ["cold", "warm"])
def test_limits_hold_without_a_control_group(found: dict[str, dict[str, str]], backend: str) -> None:
    seen = found[backend]
    assert "MemoryError" in seen["memory"]
    assert (seen["cpu"], seen["wall"]) == ("CPU", "TIMEOUT")


def test_without_permission_for_it_a_missing_cgroup_is_unsafe() -> None:
    done = ordinary_user.run("""
import asyncio
from services.sandbox.adapters.sandboxd_client import SandboxdJail
from services.sandbox.bootstrap import supervisor_config
from tests.support.sandbox import sandbox_settings, short_folder

async def main():
    with short_folder() as folder:
        jail = SandboxdJail(supervisor_config(sandbox_settings(folder)))
        await jail.start()
        try:
            isolation = await jail.isolation()
            print(isolation.safe, isolation.failure.name, isolation.failure.remedy)
        finally:
            await jail.close()

asyncio.run(main())
""")
    if done.stdout.startswith("True"):
        pytest.skip("this machine delegates control groups to everyone")
    assert done.stdout.startswith("False memory_cgroup ")
    assert "PROCTOR_SANDBOX_ALLOW_NO_CGROUP" in done.stdout


def test_root_of_a_container_without_powers_drops_to_an_unprivileged_user() -> None:
    done = ordinary_user.run(PROGRAM, privileges=ordinary_user.CONTAINER_ROOT)
    assert done.returncode == 0, done.stderr
    for seen in json.loads(done.stdout).values():
        assert seen["host"] == "0"
        assert int(seen["uid"]) >= 60600
        assert (seen["home"], seen["wall"], seen["cpu"]) == ("ENOENT", "TIMEOUT", "CPU")

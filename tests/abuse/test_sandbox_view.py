"""What hostile code can see and change of the machine (cases 1 to 8, 40 and 44 of the sandbox's abuse table)."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from services.sandbox.domain import Status
from services.sandbox.sandboxd.probe import CANARY_VARIABLE
from services.sandbox.settings import Backend
from tests.support.sandbox import Runner, needs_environment, short_folder

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_environment]

ALLOWED_VARIABLES = {
    "HOME",
    "PATH",
    "LANG",
    "LC_CTYPE",
    "TZ",
    "PWD",
    "XDG_CACHE_HOME",
    "MPLBACKEND",
    "MPLCONFIGDIR",
    "OPENBLAS_NUM_THREADS",
    "OMP_NUM_THREADS",
    "LD_LIBRARY_PATH",
}


async def test_01_system_files_do_not_exist(runner: Runner) -> None:
    paths = ("/etc/passwd", "/etc/shadow", "/etc", "/home", "/var")
    assert await runner.errnos(*(f"attempt(os.stat, {path!r})" for path in paths)) == ["ENOENT"] * 5


async def test_02_planted_secrets_sources_and_keys_do_not_exist(runner: Runner) -> None:
    with short_folder() as folder:
        (folder / ".env").write_text("SECRET=1")
        (folder / ".ssh").mkdir()
        (folder / ".ssh" / "id_ed25519").write_text("key")
        here = Path(__file__)
        paths = (folder / ".env", folder / ".ssh" / "id_ed25519", here, here.parents[2] / "services", Path.home())
        assert all(path.exists() for path in paths)
        assert await runner.errnos(*(f"attempt(os.stat, {str(path)!r})" for path in paths)) == ["ENOENT"] * 5


async def test_03_the_first_process_shows_no_environment(runner: Runner) -> None:
    result = await runner.run("""
try:
    print(repr(open('/proc/1/environ').read()))
except PermissionError:
    print('EACCES')
""")
    assert result.text.strip() in ("''", "EACCES")


async def test_04_the_environment_is_the_allowlist(runner: Runner, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROCTOR_SECRET_KEY", "leak")
    result = await runner.run("import os; print(' '.join(os.environ))")
    assert set(result.text.split()) <= ALLOWED_VARIABLES
    assert CANARY_VARIABLE not in result.text


async def test_05_the_first_process_cannot_be_read_or_entered(runner: Runner) -> None:
    reads = [f"attempt(open, '/proc/1/{name}', 'rb')" for name in ("mem", "maps", "environ")]
    lists = [f"attempt(os.listdir, '/proc/1/{name}')" for name in ("fd", "root/")]
    assert await runner.errnos(*reads, *lists) == ["EACCES"] * 5


async def test_06_sockets_and_devices_of_the_host_do_not_exist(runner: Runner) -> None:
    paths = ("/var/run/docker.sock", "/sys", "/run", "/dev/sda", "/dev/vda", "/dev/kvm", "/dev/mem")
    assert await runner.errnos(*(f"attempt(os.stat, {path!r})" for path in paths)) == ["ENOENT"] * 7


async def test_07_the_tree_is_read_only(runner: Runner) -> None:
    paths = ("/usr/x", "/x", "/opt/x", "/opt/venv/x", "/opt/python/x", "/opt/harness/x", "/dev/x")
    attempts = [f"attempt(open, {path!r}, 'w')" for path in paths]
    attempts.append("import site; attempt(open, site.getsitepackages()[0] + '/evil.py', 'w')")
    assert set(await runner.errnos(*attempts)) <= {"EROFS", "EACCES"}


async def test_08_kernel_settings_cannot_be_written(runner: Runner) -> None:
    paths = ("/proc/sys/kernel/core_pattern", "/proc/sys/vm/overcommit_memory", "/proc/sysrq-trigger")
    attempts = [f"attempt(os.open, {path!r}, os.O_WRONLY)" for path in paths]
    assert set(await runner.errnos(*attempts)) <= {"EROFS", "EACCES", "ENOENT"}


async def test_21_an_abstract_socket_of_the_host_refuses(runner: Runner) -> None:
    name = f"proctor-abuse-{os.getpid()}"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("\0" + name)
        listener.listen()
        code = f"attempt(socket.socket(socket.AF_UNIX).connect, '\\0{name}')"
        assert await runner.errno(code) == "ECONNREFUSED"


async def test_44_two_jobs_share_no_files_processes_or_memory(runner: Runner) -> None:
    await runner.run(
        "open('/tmp/mark', 'w').close(); open('/workspace/mark', 'w').close(); open('/dev/shm/mark', 'w').close()"
    )
    result = await runner.run("""
import os
print(os.listdir('/workspace'), 'mark' in os.listdir('/tmp'), os.listdir('/dev/shm'))
print(len([p for p in os.listdir('/proc') if p.isdigit()]))
""")
    # Process 1 and the code itself.
    assert result.text.split("\n")[:2] == ["[] False []", "2"]


async def test_44_system_v_memory_is_private_to_a_job(runner: Runner) -> None:
    libc = "import ctypes; libc = ctypes.CDLL(None, use_errno=True)\n"
    made = await runner.run(libc + "print(libc.shmget(0x5151, 4096, 0o1666))")
    assert int(made.text) >= 0
    found = await runner.run(libc + "print(libc.shmget(0x5151, 4096, 0o666), ctypes.get_errno())")
    assert found.text.split() == ["-1", "2"]


async def test_44_jobs_at_the_same_time_do_not_see_each_other(runner: Runner) -> None:
    import asyncio

    look = "import os, time; time.sleep(0.3); print(sorted(int(p) for p in os.listdir('/proc') if p.isdigit()))"
    one, two = await asyncio.gather(runner.run(look), runner.run(look))
    assert len(eval(one.text)) == len(eval(two.text)) == 2


async def test_forked_jobs_do_not_share_random_numbers(runner: Runner) -> None:
    code = "import random, numpy; print(random.random(), numpy.random.random())"
    first, second = await runner.run(code), await runner.run(code)
    assert first.status is second.status is Status.OK
    assert not set(first.text.split()) & set(second.text.split())


async def test_from_outside_the_sandbox_runs_unprivileged_and_with_an_empty_environment(runner: Runner) -> None:
    children = Path(f"/proc/{runner.jail.supervisor_pid}/task/{runner.jail.supervisor_pid}/children").read_text()
    if runner.backend is Backend.COLD:
        import asyncio

        task = asyncio.create_task(runner.run("import time; time.sleep(0.6)"))
        while not children.split():
            await asyncio.sleep(0.01)
            children = Path(
                f"/proc/{runner.jail.supervisor_pid}/task/{runner.jail.supervisor_pid}/children"
            ).read_text()
        await asyncio.sleep(0.1)
        pids = children.split()
        check_bwrap(pids[0])
        await task
    else:
        check_bwrap(children.split()[0])


def check_bwrap(pid: str) -> None:
    status = Path(f"/proc/{pid}/status").read_text()
    uids = next(line.split()[1:] for line in status.splitlines() if line.startswith("Uid:"))
    assert os.geteuid() != 0 or "0" not in uids
    assert "NoNewPrivs:\t1" in status
    assert Path(f"/proc/{pid}/environ").read_bytes() == b""

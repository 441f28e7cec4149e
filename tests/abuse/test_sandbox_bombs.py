"""What hostile code can use up (cases 25 to 37 of the sandbox's abuse table)."""

from __future__ import annotations

import pytest

from services.sandbox.domain import Status
from tests.support.process_table import living
from tests.support.sandbox import Runner, needs_environment

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_environment]

MEBIBYTE = 1 << 20


def called(name: str) -> str:
    return f"import ctypes, os, sys, time, signal\nctypes.CDLL(None).prctl(15, b'{name}', 0, 0, 0)\n"


FORK_BOMB = """
while True:
    try:
        os.fork()
    except OSError:
        pass
"""


async def test_25_a_fork_bomb_is_capped_and_leaves_nothing(runner: Runner) -> None:
    result = await runner.run(called("abuse-forks") + FORK_BOMB, wall=1.0, cpu=60, pids=32)
    assert result.status is Status.TIMEOUT
    assert result.finished.wall < 1.0 + 2.0
    assert living("abuse-forks") == []


async def test_25_a_fork_bomb_without_a_cgroup_is_capped_too(uncounted: Runner) -> None:
    code = (
        called("abuse-forks2")
        + """
made = 0
while True:
    try:
        if os.fork() == 0:
            time.sleep(60)
        made += 1
    except OSError:
        break
print(made)
"""
    )
    result = await uncounted.run(code, pids=32)
    assert 16 <= int(result.text) <= 32
    assert living("abuse-forks2") == []


async def test_25_a_thread_bomb_ends_with_an_error_at_the_cap(runner: Runner) -> None:
    result = await runner.run("""
import threading, time
count = 0
try:
    while True:
        threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
        count += 1
except RuntimeError:
    print('RuntimeError', count)
""")
    word, count = result.text.split()
    assert word == "RuntimeError"
    assert 32 <= int(count) <= 64


@pytest.mark.parametrize("grow", ["b.append(bytearray(10_000_000))", "b.append(numpy.ones(2_000_000))"])
async def test_26_a_memory_bomb_ends_as_memory_error_or_oom(runner: Runner, grow: str) -> None:
    result = await runner.run(f"import numpy\nb = []\nwhile True: {grow}", memory=200 * MEBIBYTE)
    assert result.status is Status.OOM or "MemoryError" in result.errors
    assert result.finished.peak_memory_bytes < 600 * MEBIBYTE


@pytest.mark.parametrize("grow", ["b.append(bytearray(10_000_000))", "b.append(numpy.ones(2_000_000))"])
async def test_26_a_memory_bomb_without_a_cgroup_ends_too(uncounted: Runner, grow: str) -> None:
    result = await uncounted.run(f"import numpy\nb = []\nwhile True: {grow}", memory=200 * MEBIBYTE)
    assert result.status is Status.OOM or "MemoryError" in result.errors


SHARED_MEMORY_CHILD = """
import mmap, os
pid = os.fork()
if pid == 0:
    held = []
    while True:
        page = mmap.mmap(-1, 32 << 20)
        page.write(b'x' * (32 << 20))
        held.append(page)
print('child', os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
"""


async def test_26_a_childs_memory_bomb_kills_the_child_and_the_parent_reports(runner: Runner) -> None:
    result = await runner.run(SHARED_MEMORY_CHILD, memory=128 * MEBIBYTE)
    assert result.text == "child -9\n"
    assert result.status is Status.OK


async def test_26_shared_memory_without_a_cgroup_is_seen_by_the_watchdog(uncounted: Runner) -> None:
    result = await uncounted.run(SHARED_MEMORY_CHILD, memory=128 * MEBIBYTE)
    assert result.status is Status.OOM


MEMFD_FLOOD = """
import os
held = []
while True:
    fd = os.memfd_create('flood')
    for _ in range(16):
        os.write(fd, b'x' * (1 << 20))
    held.append(fd)
"""


async def test_27_a_memfd_flood_is_killed_for_memory(runner: Runner) -> None:
    result = await runner.run(MEMFD_FLOOD, memory=64 * MEBIBYTE)
    assert result.status is Status.OOM


async def test_27_without_a_cgroup_there_is_no_memfd(uncounted: Runner) -> None:
    assert await uncounted.errno("attempt(os.memfd_create, 'x')") == "EPERM"


@pytest.mark.parametrize(("folder", "most"), [("/workspace", 256), ("/tmp", 64), ("/dev/shm", 64)])
async def test_28_file_systems_are_full_at_their_size(runner: Runner, folder: str, most: int) -> None:
    result = await runner.run(f"""
import errno, os
written = 0
try:
    for n in range(20):
        with open(f'{folder}/f{{n}}', 'wb', buffering=0) as file:
            for _ in range(60):
                written += file.write(b'x' * (1 << 20))
except OSError as error:
    print(errno.errorcode[error.errno], written >> 20)
for n in range(20):
    if os.path.exists(f'{folder}/f{{n}}'): os.unlink(f'{folder}/f{{n}}')
""")
    word, written = result.text.split()
    assert word == "ENOSPC"
    assert int(written) <= most


@pytest.mark.parametrize("folder", ["/workspace", "/tmp", "/dev/shm"])
async def test_28_an_inode_flood_is_stopped(runner: Runner, folder: str) -> None:
    result = await runner.run(f"""
import errno, os
os.mkdir('{folder}/many')
try:
    for n in range(10_000):
        os.close(os.open(f'{folder}/many/{{n}}', os.O_CREAT | os.O_WRONLY))
except OSError as error:
    print(errno.errorcode[error.errno], n < 4096)
""")
    assert result.text == "ENOSPC True\n"


async def test_29_files_stay_under_the_limit(runner: Runner) -> None:
    assert await runner.errno("attempt(open('f', 'wb').truncate, 10 << 30)") == "EFBIG"
    assert await runner.errno("f = open('f', 'wb', buffering=0); f.seek(64 << 20); attempt(f.write, b'x')") == "EFBIG"


async def test_30_deep_folders_are_bounded_and_harvested_to_a_depth(runner: Runner) -> None:
    result = await runner.run("""
import os
open('top.txt', 'w').write('t')
try:
    for n in range(20_000):
        os.mkdir('d'); os.chdir('d')
        if n < 12: open('f.txt', 'w').write(str(n))
except OSError as error:
    print(n < 4096)
""")
    assert result.text == "True\n"
    assert "top.txt" in result.files
    assert max(name.count("/") for name in result.files) <= 7
    assert any("deeper" in reason for reason in result.dropped.values())


@pytest.mark.parametrize("line", ["print('x' * 1000)", "sys.stdout.write('y' * 1000)", "os.write(2, b'z' * 1000)"])
async def test_31_an_output_flood_is_cut_and_ended(runner: Runner, line: str) -> None:
    result = await runner.run(f"import os, sys\nprint('first', flush=True)\nwhile True: {line}")
    assert result.status is Status.OUTPUT_LIMIT
    assert result.text.startswith("first\n")
    assert len(result.stdout) <= MEBIBYTE
    assert len(result.stderr) <= MEBIBYTE // 4
    assert result.finished.stdout_truncated or result.finished.stderr_truncated


async def test_31_output_over_the_limit_that_ends_is_kept_from_the_start(runner: Runner) -> None:
    result = await runner.run("print('a' * (3 << 20))")
    assert result.status is Status.OK
    assert result.stdout == b"a" * MEBIBYTE
    assert result.finished.stdout_truncated


async def test_32_output_bytes_are_kept_as_they_are(runner: Runner) -> None:
    raw = bytes(range(256)) + b"\x1b[31mred\x1b[0m\xff\xfe"
    result = await runner.run(f"import os; _ = os.write(1, {raw!r})")
    assert result.stdout == raw


async def test_33_ignored_signals_do_not_help(runner: Runner) -> None:
    code = (
        called("abuse-deaf")
        + """
for number in range(1, 65):
    try: signal.signal(number, signal.SIG_IGN)
    except (OSError, ValueError): pass
open('kept.txt', 'w').write('partial')
while True: pass
"""
    )
    result = await runner.run(code, wall=0.5)
    assert result.status is Status.TIMEOUT
    assert result.finished.wall < 4.5
    assert result.files == {"kept.txt": b"partial"}
    assert living("abuse-deaf") == []


@pytest.mark.prove
async def test_34_cpu_time_counts_over_all_processes(runner: Runner) -> None:
    code = called("abuse-burn") + "for _ in range(4): os.fork()\nwhile True: pass\n"
    result = await runner.run(code, cpu=1.0, wall=20)
    assert result.status is Status.CPU
    assert living("abuse-burn") == []


@pytest.mark.prove
async def test_34_cpu_time_counts_without_a_cgroup(uncounted: Runner) -> None:
    code = called("abuse-burn2") + "for _ in range(4): os.fork()\nwhile True: pass\n"
    result = await uncounted.run(code, cpu=1.0, wall=20)
    assert result.status is Status.CPU
    assert living("abuse-burn2") == []


async def test_35_daemons_do_not_outlive_the_call(runner: Runner) -> None:
    code = (
        called("abuse-daemon")
        + """
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        os.closerange(0, 256)
        while True: time.sleep(1)
    os._exit(0)
print('done')
"""
    )
    result = await runner.run(code)
    assert result.text == "done\n"
    assert result.finished.wall < 2.0
    assert living("abuse-daemon") == []


async def test_35_a_daemon_that_keeps_the_output_open_does_not_delay_the_call(runner: Runner) -> None:
    code = called("abuse-hold") + "if os.fork() == 0:\n    os.setsid()\n    time.sleep(60)\nprint('done')\n"
    result = await runner.run(code)
    assert (result.text, result.status) == ("done\n", Status.OK)
    assert result.finished.wall < 2.0


async def test_36_killing_the_first_process_or_all_has_no_effect_outside(runner: Runner) -> None:
    before = runner.jail.supervisor_pid
    result = await runner.run("""
import os, signal
for number in range(1, 65):
    try: os.kill(1, number)
    except OSError: pass
try: os.kill(-1, 9)
except ProcessLookupError: pass
print('alive')
""")
    assert result.text == "alive\n"
    assert result.status is Status.OK
    assert runner.jail.supervisor_pid == before
    assert (await runner.run("print(1)")).text == "1\n"

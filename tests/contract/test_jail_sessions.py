"""Sessions of the jail, on both backends: state is kept, calls are bounded, nothing runs in between."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from services.sandbox.domain import InputFile, Status
from tests.support.jails import runner, uncounted
from tests.support.sandbox import Runner, needs_environment

__all__ = ["runner", "uncounted"]

pytestmark = [pytest.mark.asyncio(loop_scope="session"), needs_environment]

# A killed child stays a zombie until its parent, which was stopped, asks for it.
ALIVE = """
states = [open(f'/proc/{p}/stat').read().rpartition(')')[2].split()[0] for p in os.listdir('/proc') if p.isdigit()]
print(count - a < 100, len([state for state in states if state != 'Z']))
"""

_names = (f"session{n}" for n in itertools.count())


@asynccontextmanager
async def session(runner: Runner) -> AsyncIterator[str]:
    name = next(_names)
    await runner.jail.open_session(name)
    try:
        yield name
    finally:
        await runner.jail.close_session(name)


async def test_names_modules_and_files_are_kept(runner: Runner) -> None:
    async with session(runner) as name:
        await runner.run("import math\ndef area(r): return math.pi * r\nopen('f', 'w').write('kept')", session=name)
        result = await runner.run("print(open('f').read(), round(area(2), 2))", session=name)
    assert result.text == "kept 6.28\n"
    assert result.files == {}, "an unchanged file is handed out once"


async def test_an_error_keeps_the_state(runner: Runner) -> None:
    async with session(runner) as name:
        failed = await runner.run("x = 5\n1 / 0", session=name)
        result = await runner.run("x", session=name)
    assert (failed.status, failed.finished.exit_code, failed.finished.state_lost) == (Status.ERROR, 1, False)
    assert result.text == "5\n"


async def test_a_timeout_that_the_code_heeds_keeps_the_state(runner: Runner) -> None:
    async with session(runner) as name:
        slow = await runner.run("x = 7\nwhile True: pass", session=name, wall=0.4)
        result = await runner.run("x", session=name)
    assert (slow.status, slow.finished.state_lost) == (Status.TIMEOUT, False)
    assert result.text == "7\n"


async def test_a_hard_kill_says_that_the_state_is_lost(runner: Runner) -> None:
    async with session(runner) as name:
        deaf = await runner.run(
            "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\nwhile True: pass", session=name, wall=0.4
        )
        after = await runner.run("1", session=name)
    assert (deaf.status, deaf.finished.state_lost) == (Status.TIMEOUT, True)
    assert (after.status, after.finished.state_lost) == (Status.SANDBOX_ERROR, True)


async def test_leaving_the_interpreter_ends_the_session(runner: Runner) -> None:
    async with session(runner) as name:
        left = await runner.run("import os; os._exit(3)", session=name)
    assert (left.status, left.finished.exit_code, left.finished.state_lost) == (Status.ERROR, 3, True)


async def test_exit_is_an_exit_code_not_an_end(runner: Runner) -> None:
    async with session(runner) as name:
        left = await runner.run("x = 1\nimport sys; sys.exit(4)", session=name)
        result = await runner.run("x", session=name)
    assert (left.finished.exit_code, left.finished.state_lost, result.text) == (4, False, "1\n")


async def test_nothing_runs_between_two_calls(runner: Runner) -> None:
    async with session(runner) as name:
        await runner.run(
            """
import os, threading, time
count = 0
def tick():
    global count
    while True:
        count += 1
        time.sleep(0.001)
threading.Thread(target=tick, daemon=True).start()
if os.fork() == 0:
    while True: time.sleep(0.01)
""",
            session=name,
        )
        before = await runner.run("a = count", session=name)
        await asyncio.sleep(0.5)
        result = await runner.run(ALIVE, session=name)
    assert before.status is Status.OK
    assert result.text == "True 2\n"


async def test_output_of_one_call_does_not_reach_the_next(runner: Runner) -> None:
    async with session(runner) as name:
        first = await runner.run("print('one')", session=name)
        second = await runner.run("print('two')", session=name)
    assert (first.text, second.text) == ("one\n", "two\n")


async def test_cpu_is_counted_per_call(runner: Runner) -> None:
    burn = "import time\nend = time.process_time() + 0.7\nwhile time.process_time() < end: pass"
    async with session(runner) as name:
        for _ in range(2):
            result = await runner.run(burn, session=name, cpu=1.2)
            assert result.status is Status.OK


async def test_files_may_be_given_in_each_call(runner: Runner) -> None:
    async with session(runner) as name:
        for content in (b"1", b"22"):
            files = [InputFile(name="in", content=content)]
            result = await runner.run("print(len(open('in').read()))", session=name, files=files)
            assert result.text == f"{len(content)}\n"


async def test_a_planted_link_does_not_catch_an_input_file(runner: Runner) -> None:
    async with session(runner) as name:
        await runner.run("import os; os.symlink('/tmp/target', 'in')", session=name)
        result = await runner.run(
            "print(open('in').read(), os.path.exists('/tmp/target'))",
            session=name,
            files=[InputFile(name="in", content=b"x")],
        )
    assert result.text == "x False\n"


async def test_a_forged_end_does_not_disturb_the_jail(runner: Runner) -> None:
    async with session(runner) as name:
        await runner.run("import os\nos.write(3, b'D\\x00D\\x00P' * 100)\nos.close(3)", session=name)
    assert (await runner.run("print('fine')")).text == "fine\n"


async def test_closing_a_session_kills_its_interpreter(runner: Runner) -> None:
    name = next(_names)
    await runner.jail.open_session(name)
    task = asyncio.create_task(runner.run("import time; print('up', flush=True); time.sleep(60)", session=name))
    await asyncio.sleep(0.3)
    await runner.jail.close_session(name)
    result = await asyncio.wait_for(task, 5)
    assert result.finished.state_lost


async def test_sessions_work_without_a_cgroup(uncounted: Runner) -> None:
    async with session(uncounted) as name:
        await uncounted.run("x = 1", session=name)
        assert (await uncounted.run("x", session=name)).text == "1\n"

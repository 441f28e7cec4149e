"""The warm pool: parked jobs are single use, the zygote is replaced in time, an empty pool is no obstacle."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from services.sandbox.domain import Status
from services.sandbox.settings import Backend
from tests.support.process_table import children
from tests.support.sandbox import Runner, needs_environment, running_jail, short_folder, until_warm

pytestmark = needs_environment


def descriptors(pid: int | str) -> int:
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


async def zygotes(runner: Runner) -> list[int]:
    return children(runner.jail.supervisor_pid)


@pytest.mark.prove
async def test_a_zygote_is_replaced_after_its_share_of_jobs() -> None:
    with short_folder() as folder:
        async with running_jail(folder, Backend.WARM, recycle_jobs=6) as runner:
            first = await zygotes(runner)
            for _ in range(100):
                assert (await runner.run("pass")).status is Status.OK
                await asyncio.sleep(0.05)
                now = await zygotes(runner)
                if not set(first) & set(now):
                    break
            assert not set(first) & set(await zygotes(runner))
            await until_warm(runner)


@pytest.mark.prove
async def test_a_job_of_a_retired_zygote_runs_to_its_end() -> None:
    with short_folder() as folder:
        async with running_jail(folder, Backend.WARM, recycle_jobs=6) as runner:
            slow = asyncio.create_task(runner.run("import time; time.sleep(2); print('end')"))
            for _ in range(20):
                await runner.run("pass")
            result = await slow
    assert (result.status, result.text) == (Status.OK, "end\n")


@pytest.mark.prove
async def test_a_session_outlives_the_zygote_that_made_it() -> None:
    with short_folder() as folder:
        async with running_jail(folder, Backend.WARM, recycle_jobs=6) as runner:
            await runner.jail.open_session("s")
            await runner.run("x = 9", session="s")
            for _ in range(20):
                await runner.run("pass")
            assert (await runner.run("x", session="s")).text == "9\n"


async def test_with_nothing_parked_jobs_are_forked_when_they_come() -> None:
    with short_folder() as folder:
        async with running_jail(folder, Backend.WARM, parked=0) as runner:
            results = await asyncio.gather(*(runner.run(f"print({number})") for number in range(6)))
    assert [result.text for result in results] == [f"{number}\n" for number in range(6)]
    assert all(result.started is not None and result.started.warm for result in results)


async def test_no_trace_of_one_job_is_left_for_the_next() -> None:
    with short_folder() as folder:
        async with running_jail(folder, Backend.WARM, parked=1) as runner:
            await runner.run("import builtins, numpy\nbuiltins.planted = 1\nnumpy.planted = 1")
            result = await runner.run(
                "import builtins, numpy\nprint(hasattr(builtins, 'planted'), hasattr(numpy, 'planted'))"
            )
    assert result.text == "False False\n"


async def test_many_jobs_leave_no_descriptor_and_no_process_behind() -> None:
    with short_folder() as folder:
        async with running_jail(folder, Backend.WARM, parked=1) as runner:
            pid = runner.jail.supervisor_pid
            await asyncio.sleep(0.5)
            own, theirs = descriptors("self"), descriptors(pid)
            for _ in range(25):
                await runner.run("open('f', 'w').write('x')")
            for _ in range(200):
                if descriptors(pid) <= theirs:
                    break
                await asyncio.sleep(0.02)
            assert descriptors("self") <= own
            assert descriptors(pid) <= theirs
            assert len(children(pid)) == 1

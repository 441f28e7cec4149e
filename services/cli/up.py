"""`proctor up`: the five services as one group, as processes or on one event loop."""

from __future__ import annotations

import asyncio
import fcntl
import os
import signal
import warnings
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import uvloop
from rich.console import Console
from rich.markup import escape

from services.chassis.settings import variable
from services.cli.group import Group, Member, MemberFailed, StartTimeout, python_module
from services.cli.layout import HTTP, MAY_NOT_SERVE, NAMES, WAVES, Layout, environment, make_layout
from services.cli.probe import wait_for_http

# What to do once the suite serves; returns the exit code that ends it, or None to go on serving.
Then = Callable[[Layout], Awaitable[int | None]]


class AlreadyRunning(Exception):
    """Another suite uses the same data folder."""


def up(data_dir: Path, listen: str, console: Console, then: Then, *, in_process: bool) -> int:
    """Run the suite until a signal, the first failure, or `then`'s word; returns the exit code."""
    layout = make_layout(data_dir, listen)
    try:
        with only_one(layout):
            environ = environment(layout, os.environ)
            run = run_in_process if in_process else run_processes
            return uvloop.run(run(layout, environ, console, then))
    finally:
        layout.remove()


@contextmanager
def only_one(layout: Layout) -> Iterator[None]:
    """Hold the data folder's lock, or raise AlreadyRunning. The kernel frees it however the process ends."""
    with (layout.data_dir / "up.lock").open("a+") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise AlreadyRunning(
                f"a suite already uses {layout.data_dir}; stop it, or start this one with another --data-dir"
            ) from None
        yield


async def run_processes(layout: Layout, environ: Mapping[str, str], console: Console, then: Then) -> int:
    """Run each service as a process of its own."""
    members = _members(layout)
    group = Group(dict(environ) | {"PROCTOR_END_WITH_PARENT": str(os.getpid())}, [member.name for member in members])
    return await _supervised(
        console,
        start=lambda: _start_processes(group, members, console),
        failure=lambda: _watch_processes(group, members, console),
        then=lambda: then(layout),
        stop=group.stop,
    )


def _members(layout: Layout) -> list[Member]:
    """Return the members in order; each is built once those of the waves before it answer that must serve."""
    members: list[Member] = []
    before: list[str] = []
    for wave in WAVES:
        members += [_member(layout, name, before) for name in wave]
        before += [layout.address(name) for name in wave if name not in MAY_NOT_SERVE]
    return members


async def _start_processes(group: Group, members: Sequence[Member], console: Console) -> None:
    # All processes load at once, which is most of a start; those that nobody waits for come when the rest stands.
    awaited = [member for member in members if member.name not in MAY_NOT_SERVE]
    for member in awaited:
        await group.spawn(member)
    for member in awaited:
        tell_health(console, member.name, serves=await group.healthy(member))


async def _watch_processes(group: Group, members: Sequence[Member], console: Console) -> None:
    """Tell of those that nobody waits for, and return never: raise MemberFailed for the first that ends."""
    for member in members:
        if member.name in MAY_NOT_SERVE:
            await group.spawn(member)
            tell_health(console, member.name, serves=await group.healthy(member))
    await group.wait()


def _member(layout: Layout, name: str, before: Sequence[str]) -> Member:
    return Member(
        name=name,
        command=python_module(name),
        log=layout.logs / f"{name}.log",
        healthy=lambda: _healthy(layout, name),
        environ={variable("", "start_after"): ",".join(before)},
    )


async def _healthy(layout: Layout, name: str) -> bool:
    if name == HTTP:
        return await wait_for_http(layout.url)
    # gRPC is loaded while the services load, not before they are started.
    from services.chassis.health import wait_for_health

    return await wait_for_health(layout.address(name), serving=name not in MAY_NOT_SERVE)


async def run_in_process(layout: Layout, environ: Mapping[str, str], console: Console, then: Then) -> int:
    """Run every service on this event loop; calls between them still cross real channels."""
    from services.chassis.logs import configure_logs
    from services.chassis.platform import open_platform
    from services.chassis.serve import ServerLimits, launch

    log = (layout.logs / "proctor.log").open("a", encoding="utf-8")
    configure_logs("proctor", environ.get("PROCTOR_LOG_LEVEL", "INFO"), log)
    stops: list[Callable[[], Awaitable[None]]] = []

    async def start() -> None:
        for name in NAMES:
            import_module(f"services.{name}.bootstrap")
        # Children are replaced by another program at once, so what a library says about forking does not concern us.
        # Only now, for libraries set filters of their own when they are imported.
        warnings.filterwarnings("ignore", message="lancedb fork support", category=RuntimeWarning)
        for name in NAMES:
            platform = open_platform(name, environ)
            stops.append(platform.telemetry.shutdown)
            running = await launch(name, platform, environ)
            stops.append(lambda running=running: running.stop(ServerLimits().stop_grace))  # type: ignore[misc]
            tell_health(console, name, serves=await _healthy(layout, name))

    async def stop() -> None:
        while stops:
            await stops.pop()()

    try:
        return await _supervised(
            console, start=start, failure=asyncio.Event().wait, then=lambda: then(layout), stop=stop
        )
    finally:
        log.close()


async def _supervised(
    console: Console,
    *,
    start: Callable[[], Awaitable[object]],
    failure: Callable[[], Awaitable[object]],
    then: Callable[[], Awaitable[int | None]],
    stop: Callable[[], Awaitable[None]],
) -> int:
    """Start, do what comes then, serve; whatever ends that, stop. Returns the exit code."""
    asked = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked.set)

    async def until_told() -> int:
        await asked.wait()
        return 0

    async def until_failure() -> int:
        await failure()
        return 1

    async def until_done() -> int:
        code = await then()
        return code if code is not None else await until_told()

    async def work() -> int:
        await start()
        return await first_of(until_done(), until_failure())

    try:
        return await first_of(work(), until_told())
    except MemberFailed as error:
        console.print(f"[bold red]{error}[/]; the end of its log:")
        console.print(error.tail, markup=False, highlight=False)
        return error.code
    except StartTimeout as error:
        console.print(f"[bold red]{escape(str(error))}[/]")
        return 1
    finally:
        await stop()


async def first_of(*works: Coroutine[Any, Any, int]) -> int:
    """Return the result of the work that ends first, or raise its failure; the others are cancelled and awaited."""
    tasks = [asyncio.ensure_future(work) for work in works]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        return next(task for task in tasks if task in done).result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def tell_health(console: Console, name: str, *, serves: bool) -> None:
    """Print one service's state."""
    if serves:
        console.print(f"[green]✓[/] {name}", highlight=False)
    else:
        console.print(f"[yellow]![/] {name} does not serve here: `proctor doctor` says why", highlight=False)

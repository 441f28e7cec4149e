"""A supervised process group: ordered start by health, reverse stop, and the first failure ends them all."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

STOP_GRACE = 25.0
TAIL_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Member:
    """One process: its command, its log, what its environment has more, and how to wait until it is healthy.

    `healthy` returns whether it serves; False is for one that answers and may do without serving.
    """

    name: str
    command: Sequence[str]
    log: Path
    healthy: Callable[[], Awaitable[bool]]
    environ: Mapping[str, str] = field(default_factory=dict)


class MemberFailed(Exception):
    """A process ended though it should run. `code` is its exit code, `tail` the end of its log."""

    def __init__(self, name: str, code: int, tail: str) -> None:
        super().__init__(f"{name} ended with code {code}")
        self.name = name
        # A process killed by a signal has a negative code; shells tell it as 128 + number.
        self.code = 128 - code if code < 0 else code or 1
        self.tail = tail


class StartTimeout(Exception):
    """A process lives but never became healthy."""


class Group:
    """Runs members. `spawn` them in order, `healthy` one after another, then `wait`; and always `stop`."""

    def __init__(self, environ: Mapping[str, str], order: Sequence[str], *, start_timeout: float = 60.0) -> None:
        """`order` names the members as they depend on one another, whenever each is spawned; `stop` reverses it."""
        self._environ = dict(environ)
        self._order = tuple(order)
        self._start_timeout = start_timeout
        self._running: list[tuple[Member, asyncio.subprocess.Process]] = []
        self._ends: dict[asyncio.Task[int], Member] = {}

    async def healthy(self, member: Member) -> bool:
        """Wait until a member is healthy and return whether it serves; raises MemberFailed or StartTimeout."""
        health: asyncio.Future[bool] = asyncio.ensure_future(member.healthy())
        try:
            async with asyncio.timeout(self._start_timeout):
                while not health.done():
                    watched: set[asyncio.Future[Any]] = {health, *self._ends}
                    await asyncio.wait(watched, return_when=asyncio.FIRST_COMPLETED)
                    self._raise_if_ended()
                return health.result()
        except TimeoutError:
            raise StartTimeout(
                f"{member.name} is not healthy after {self._start_timeout:.0f} s; see {member.log}"
            ) from None
        finally:
            health.cancel()
            await asyncio.gather(health, return_exceptions=True)

    async def wait(self) -> None:
        """Return never: wait for a member to end and raise MemberFailed for it."""
        await asyncio.wait(self._ends, return_when=asyncio.FIRST_COMPLETED)
        self._raise_if_ended()

    async def stop(self) -> None:
        """End the members in reverse order, each within the grace, then by force."""
        for task in self._ends:
            task.cancel()
        await asyncio.gather(*self._ends, return_exceptions=True)
        self._ends.clear()
        self._running.sort(key=lambda running: self._order.index(running[0].name))
        while self._running:
            _, process = self._running.pop()
            if process.returncode is not None:
                continue
            with suppress(ProcessLookupError):
                process.terminate()
            try:
                await asyncio.wait_for(process.wait(), STOP_GRACE)
            except TimeoutError:
                process.kill()
                await process.wait()

    async def spawn(self, member: Member) -> None:
        """Start a member's process."""
        with member.log.open("ab") as log:
            process = await asyncio.create_subprocess_exec(
                *member.command,
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**self._environ, **member.environ},
                # A Ctrl-C in the terminal reaches the supervisor alone, which ends the members in order.
                start_new_session=True,
            )
        self._running.append((member, process))
        self._ends[asyncio.create_task(process.wait(), name=member.name)] = member

    def _raise_if_ended(self) -> None:
        for task, member in self._ends.items():
            if task.done():
                raise MemberFailed(member.name, task.result(), tail_of(member.log))


def tail_of(log: Path) -> str:
    """Return the last lines of a log."""
    with log.open("rb") as file:
        file.seek(0, 2)
        file.seek(max(0, file.tell() - TAIL_BYTES))
        return file.read().decode("utf-8", "replace")


def python_module(name: str) -> list[str]:
    """Return the command that runs a service."""
    return [sys.executable, "-m", f"services.{name}"]

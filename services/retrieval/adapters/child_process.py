"""A helper process that answers one request line with one reply line, for work that must not share our process.

It is started when first needed, killed when a reply takes too long, and started anew after that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence

MAX_LINE = 64 * 1024 * 1024


class ChildDied(Exception):
    """The process ended before it replied: by its own fault, or by a limit of the kernel. `status` is its exit code."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"the process ended with {status}")
        self.status = status


class ChildProcess:
    """One helper, one request at a time. `retire_after` requests it is replaced, which bounds what it may leak."""

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        extra: Mapping[str, str] | None = None,
        retire_after: int = 0,
    ) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._extra = dict(extra or {})
        self._retire_after = retire_after
        self._process: Process | None = None
        self._served = 0
        self._turn = asyncio.Lock()

    async def ask(self, request: bytes, limit: float) -> bytes:
        """Send one line and return the reply; TimeoutError after `limit` seconds, ChildDied when it ended."""
        async with self._turn:
            process = await self._running()
            replied = False
            try:
                reply = await asyncio.wait_for(self._exchange(process, request), limit)
                replied = True
            finally:
                # After a time-out or a cancellation the next line would answer the wrong question.
                if not replied:
                    await self._kill()
            self._served += 1
            if self._retire_after and self._served >= self._retire_after:
                await self._kill()
            return reply

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            await self._kill()

    async def _exchange(self, process: Process, request: bytes) -> bytes:
        assert process.stdin is not None
        assert process.stdout is not None
        with contextlib.suppress(ConnectionError):
            process.stdin.write(request + b"\n")
            await process.stdin.drain()
        reply = await process.stdout.readline()
        if not reply.endswith(b"\n"):
            raise ChildDied(await process.wait())
        return reply

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._served = 0
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, limit=MAX_LINE, env=self._environment()
            )
        return self._process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()

    def _environment(self) -> dict[str, str]:
        """Return the environment of the helper: what Python needs, and none of our secrets."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        return {**kept, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONUNBUFFERED": "1", **self._extra}

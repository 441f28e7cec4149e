"""A helper process that answers a request line with reply lines, for work that must not share our process.

It is started when first needed, killed when a reply takes too long or is not wanted any more, and started anew after
that.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Mapping, Sequence

MAX_LINE = 64 * 1024 * 1024
# Whatever a killed helper had written is read within this.
LEFT_OVER_SECONDS = 1.0


class ChildDied(Exception):
    """The process ended before it replied: by its own fault, or by a limit of the kernel. `status` is its exit code."""

    def __init__(self, status: int | None) -> None:
        super().__init__(f"the process ended with {status}")
        self.status = status


class ReplyTooLong(Exception):
    """The process wrote a longer line than it may."""


class Conversation:
    """One request and its reply, line by line. Whoever reads the last line says so, or the helper is killed."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self.complete = False

    async def send(self, request: bytes) -> None:
        """Send the request."""
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):
            self._process.stdin.write(request + b"\n")
            await self._process.stdin.drain()

    async def line(self) -> bytes:
        """Return the next line of the reply, or raise ChildDied or ReplyTooLong."""
        assert self._process.stdout is not None
        try:
            line = await self._process.stdout.readline()
        except ValueError:
            raise ReplyTooLong from None
        if not line.endswith(b"\n"):
            raise ChildDied(await self._process.wait())
        return line


class ChildProcess:
    """One helper, one request at a time. `retire_after` requests it is replaced, which bounds what it may leak.

    A reply's line has at most `longest` bytes, and the helper is at most twice that ahead of whoever reads.
    """

    def __init__(
        self,
        module: str,
        arguments: Sequence[str] = (),
        *,
        extra: Mapping[str, str] | None = None,
        retire_after: int = 0,
        longest: int = MAX_LINE,
    ) -> None:
        self._command = [sys.executable, "-m", module, *arguments]
        self._extra = dict(extra or {})
        self._retire_after = retire_after
        self._longest = longest
        self._process: Process | None = None
        self._served = 0
        self._turn = asyncio.Lock()

    async def ask(self, request: bytes, limit: float) -> bytes:
        """Send one line and return the one that comes back; TimeoutError after `limit` seconds, ChildDied when it
        ended.
        """
        async with self.converse() as conversation:
            async with asyncio.timeout(limit):
                await conversation.send(request)
                reply = await conversation.line()
            conversation.complete = True
            return reply

    @contextlib.asynccontextmanager
    async def converse(self) -> AsyncIterator[Conversation]:
        """Hold the helper for one request, however many lines its reply has."""
        async with self._turn:
            conversation = Conversation(await self._running())
            try:
                yield conversation
            finally:
                # What is left of a reply would answer the next question.
                if not conversation.complete:
                    await self._kill()
            self._served += 1
            if self._retire_after and self._served >= self._retire_after:
                await self._kill()

    async def close(self) -> None:
        """End the process."""
        async with self._turn:
            await self._kill()

    async def _running(self) -> Process:
        if self._process is None or self._process.returncode is not None:
            self._served = 0
            self._process = await asyncio.create_subprocess_exec(
                *self._command, stdin=PIPE, stdout=PIPE, limit=self._longest, env=self._environment()
            )
        return self._process

    async def _kill(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        assert process.stdout is not None
        # A pipe that is not read to its end is never closed.
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LEFT_OVER_SECONDS):
                while await process.stdout.read(self._longest):
                    pass
        await process.wait()

    def _environment(self) -> dict[str, str]:
        """Return the environment of the helper: what Python needs, and none of our secrets."""
        kept = {name: os.environ[name] for name in ("PATH", "LANG", "LC_ALL", "TMPDIR") if name in os.environ}
        return {**kept, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONUNBUFFERED": "1", **self._extra}

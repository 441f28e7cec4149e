"""One upload stream: files arrive one after another, progress of all of them goes back meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from services.chassis.clock import Ids
from services.chassis.errors import InvalidRequest, ServiceError
from services.chassis.identity import Principal
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.library import DocumentState, Progress, Source, Upload
from services.retrieval.ingest import Ingest
from services.retrieval.ports import Staging
from services.retrieval.sources import Library


@dataclass(frozen=True, slots=True, kw_only=True)
class FileStart:
    """A file begins."""

    source: str
    path: str
    size: int = 0
    url: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class FileBytes:
    """Its next bytes."""

    data: bytes


@dataclass(frozen=True, slots=True)
class FileEnd:
    """It is complete."""


# How much of a refused upload is still read, and for how long.
DRAIN_BYTES = 4 * 2**20
DRAIN_SECONDS = 2.0

Part: TypeAlias = FileStart | FileBytes | FileEnd


class Uploads:
    """Takes upload streams. Files that were received whole are ingested also when their client leaves."""

    def __init__(
        self, library: Library, ingest: Ingest, staging: Staging, ids: Ids, *, max_bytes: int, outstanding: int
    ) -> None:
        self._library = library
        self._ingest = ingest
        self._staging = staging
        self._ids = ids
        self._max_bytes = max_bytes
        self._outstanding = outstanding

    async def run(self, principal: Principal, parts: AsyncIterator[Part]) -> AsyncIterator[Progress]:
        """Yield the progress of every file until each is settled. At most `outstanding` files are under way at once.

        Raises InvalidRequest when the parts come in no sensible order.
        """
        stream = _Stream(self, principal, parts)
        reading = asyncio.create_task(stream.read())
        try:
            async for progress in stream.progress():
                yield progress
            await reading
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def receive(self, source: Source, start: FileStart, chunks: AsyncIterator[bytes]) -> Upload:
        """Store one file on local disk."""
        if start.size > self._max_bytes:
            raise UnreadableFile("TOO_LARGE", f"the file is larger than {self._max_bytes // 2**20} MiB")
        staged, size, content_hash = await self._staging.receive(chunks, self._max_bytes)
        return Upload(
            tenant=source.tenant,
            source_id=source.id,
            path=start.path,
            staged=staged,
            size=size,
            content_hash=content_hash,
            url=start.url,
            metadata=start.metadata,
        )


class _Stream:
    """The state of one upload stream."""

    def __init__(self, uploads: Uploads, principal: Principal, parts: AsyncIterator[Part]) -> None:
        self._uploads = uploads
        self._principal = principal
        self._parts = parts
        self._events: asyncio.Queue[Progress | None] = asyncio.Queue()
        self._room = asyncio.Semaphore(uploads._outstanding)  # noqa: SLF001
        self._open = 0
        self._read_all = False

    async def progress(self) -> AsyncIterator[Progress]:
        while (event := await self._events.get()) is not None:
            yield event

    async def read(self) -> None:
        try:
            async for part in self._parts:
                await self._file(_header(part))
            self._read_all = True
            self._maybe_end()
        except ServiceError:
            await self._drain()
            raise
        finally:
            if not self._read_all:
                self._events.put_nowait(None)

    async def _drain(self) -> None:
        """Read on for a while: a client that is cut off while it sends hears INTERNAL instead of the reason."""
        left = DRAIN_BYTES
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(DRAIN_SECONDS):
                async for part in self._parts:
                    left -= len(part.data) if isinstance(part, FileBytes) else 0
                    if left < 0:
                        return

    async def _file(self, start: FileStart) -> None:
        source = await self._uploads._library.changeable(self._principal, start.source)  # noqa: SLF001
        await self._room.acquire()
        self._open += 1
        chunks = _Chunks(self._parts)
        try:
            upload = await self._uploads.receive(source, start, chunks.read())
        except UnreadableFile as refusal:
            await chunks.skip()
            self._report(
                Progress(path=start.path, state=DocumentState.FAILED, reason=refusal.reason, message=refusal.message)
            )
            return
        await self._uploads._ingest.submit(upload, self._uploads._ids.new(), self._report)  # noqa: SLF001

    def _report(self, progress: Progress) -> None:
        self._events.put_nowait(progress)
        if progress.state.settled or progress.unchanged:
            self._open -= 1
            self._room.release()
            self._maybe_end()

    def _maybe_end(self) -> None:
        if self._read_all and not self._open:
            self._events.put_nowait(None)


def _header(part: Part) -> FileStart:
    if isinstance(part, FileStart):
        return part
    raise InvalidRequest("a file's bytes came before its header; send the header first")


class _Chunks:
    """The bytes of one file, up to its end."""

    def __init__(self, parts: AsyncIterator[Part]) -> None:
        self._parts = parts
        self._ended = False

    async def read(self) -> AsyncIterator[bytes]:
        while not self._ended:
            match await anext(self._parts, None):
                case FileBytes(data=data):
                    yield data
                case FileEnd():
                    self._ended = True
                case FileStart(path=path):
                    raise InvalidRequest(f"'{path}' began before the file before it ended; send its end first")
                case None:
                    raise InvalidRequest("the stream ended inside a file; send the file again with its end")

    async def skip(self) -> None:
        """Read on to the end of a file that is refused, so that the next one is understood."""
        async for _ in self.read():
            pass

"""Uploaded bytes on local disk. A file's name there ends in its SHA-256, and it appears only when it is whole."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import os
from collections.abc import AsyncIterator, Iterable
from pathlib import Path
from typing import IO

from services.chassis.clock import Ids
from services.retrieval.domain.errors import UnreadableFile

_PARTIAL = ".part"


class LocalStaging:
    """Implements the port Staging."""

    def __init__(self, directory: Path, ids: Ids) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        # Absolute, because the parsing process need not share our working directory.
        self._directory = directory.resolve()
        self._ids = ids

    async def receive(self, chunks: AsyncIterator[bytes], limit: int) -> tuple[str, int, str]:
        partial = self._directory / f"{self._ids.new()}{_PARTIAL}"
        file = await asyncio.to_thread(partial.open, "wb")
        digest = hashlib.sha256()
        size = 0
        try:
            async for chunk in chunks:
                size += len(chunk)
                if size > limit:
                    raise UnreadableFile("TOO_LARGE", f"the file is larger than {limit // 2**20} MiB")
                digest.update(chunk)
                await asyncio.to_thread(file.write, chunk)
            staged = f"{partial.stem}-{digest.hexdigest()}"
            await asyncio.to_thread(_seal, file, partial, self._directory / staged)
        finally:
            file.close()
            with contextlib.suppress(FileNotFoundError):
                partial.unlink()
        return staged, size, digest.hexdigest()

    def path(self, staged: str) -> Path:
        return self._directory / staged

    async def discard(self, staged: str) -> None:
        await asyncio.to_thread((self._directory / staged).unlink, missing_ok=True)

    async def names(self) -> Iterable[str]:
        return await asyncio.to_thread(lambda: [path.name for path in self._directory.iterdir()])


def _seal(file: IO[bytes], partial: Path, final: Path) -> None:
    file.flush()
    os.fsync(file.fileno())
    partial.rename(final)
    directory = os.open(final.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)

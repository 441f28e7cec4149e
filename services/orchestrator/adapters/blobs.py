"""Bytes of kept files in a local directory."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import BinaryIO

CHUNK = 256 * 1024
_KEY = re.compile(r"[0-9a-f]{32,64}")


class LocalBlobs:
    """One file per key, written whole or not at all; blocking work happens in threads."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def put(self, key: str, content: AsyncIterator[bytes]) -> int:
        """Store `content` under `key`, replacing what was there, and return its size. A failure leaves nothing."""
        path = self._path(key)
        partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
        file = await asyncio.to_thread(_create, partial)
        size = 0
        try:
            async for chunk in content:
                await asyncio.to_thread(file.write, chunk)
                size += len(chunk)
            await asyncio.to_thread(_keep, file, partial, path)
        except BaseException:
            file.close()
            partial.unlink(missing_ok=True)
            raise
        return size

    async def read(self, key: str) -> AsyncIterator[bytes]:
        """Yield the bytes in chunks of at most CHUNK; raise FileNotFoundError when there are none."""
        file = await asyncio.to_thread(self._path(key).open, "rb")
        try:
            while chunk := await asyncio.to_thread(file.read, CHUNK):
                yield chunk
        finally:
            file.close()

    async def delete(self, key: str) -> None:
        """Remove the bytes; nothing happens when they are gone already."""
        await asyncio.to_thread(self._path(key).unlink, missing_ok=True)

    def _path(self, key: str) -> Path:
        if not _KEY.fullmatch(key):
            raise ValueError(f"'{key}' is no blob key: 32 to 64 hexadecimal digits")
        return self._directory / key[:2] / key


def _create(path: Path) -> BinaryIO:
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("wb")


def _keep(file: BinaryIO, partial: Path, path: Path) -> None:
    """Make it durable before it gets its name, and the name durable too."""
    file.flush()
    os.fsync(file.fileno())
    file.close()
    partial.rename(path)
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)

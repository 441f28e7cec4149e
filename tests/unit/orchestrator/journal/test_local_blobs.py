"""Blobs in a directory: whole or not at all, and no path from outside."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.orchestrator.adapters.blobs import CHUNK, LocalBlobs

KEY = "0123456789abcdef" * 2


async def chunks(*pieces: bytes) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def read(blobs: LocalBlobs, key: str) -> list[bytes]:
    return [chunk async for chunk in blobs.read(key)]


async def test_bytes_come_back_in_bounded_chunks(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path / "made")
    content = bytes(range(256)) * 2048
    assert await blobs.put(KEY, chunks(content[:1000], content[1000:])) == len(content)
    kept = await read(blobs, KEY)
    assert b"".join(kept) == content
    assert max(map(len, kept)) <= CHUNK


async def test_nothing_at_all_is_a_blob_too(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    assert await blobs.put(KEY, chunks()) == 0
    assert await read(blobs, KEY) == []


async def test_an_upload_that_breaks_leaves_nothing(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"half"
        raise ConnectionError("gone")

    blobs = LocalBlobs(tmp_path)
    with pytest.raises(ConnectionError):
        await blobs.put(KEY, broken())
    with pytest.raises(FileNotFoundError):
        await read(blobs, KEY)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


async def test_a_replacement_that_breaks_keeps_the_old(tmp_path: Path) -> None:
    async def broken() -> AsyncIterator[bytes]:
        yield b"new"
        raise ConnectionError("gone")

    blobs = LocalBlobs(tmp_path)
    await blobs.put(KEY, chunks(b"old"))
    with pytest.raises(ConnectionError):
        await blobs.put(KEY, broken())
    assert await read(blobs, KEY) == [b"old"]


async def test_deleting_twice_is_deleting_once(tmp_path: Path) -> None:
    blobs = LocalBlobs(tmp_path)
    await blobs.put(KEY, chunks(b"x"))
    await blobs.delete(KEY)
    await blobs.delete(KEY)
    with pytest.raises(FileNotFoundError):
        await read(blobs, KEY)


@pytest.mark.parametrize("key", ["", "../../etc/passwd", "/etc/passwd", KEY + "/..", KEY.upper(), "0" * 31, KEY + "\n"])
async def test_a_key_cannot_be_a_path(tmp_path: Path, key: str) -> None:
    blobs = LocalBlobs(tmp_path)
    with pytest.raises(ValueError, match="is no blob key"):
        await blobs.delete(key)
    with pytest.raises(ValueError, match="is no blob key"):
        await blobs.put(key, chunks(b"x"))

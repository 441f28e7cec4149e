"""Files that runs make and messages carry: checked, stored, owned, served."""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
import re
import unicodedata
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Protocol

from services.chassis.clock import Clock, Ids
from services.chassis.errors import InvalidRequest, TooLarge
from services.chassis.identity import Principal
from services.orchestrator.domain.artifact import OwnedArtifact
from services.orchestrator.domain.messages import Artifact, MediaPart

_FORBIDDEN = re.compile(r'[\x00-\x1f\x7f\\/:*?"<>|\ud800-\udfff]')
_SIGNATURES = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF8", "image/gif"),
    (b"%PDF-", "application/pdf"),
    (b"PK\x03\x04", "application/zip"),
)
_QUEUE = 8
# Types that models take as pictures.
PICTURES = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})


class Blobs(Protocol):
    """Keeps bytes under a key."""

    async def put(self, key: str, content: AsyncIterator[bytes]) -> int: ...

    def read(self, key: str) -> AsyncIterator[bytes]: ...

    async def delete(self, key: str) -> None: ...


class ArtifactRecords(Protocol):
    """Which files exist, whose they are and until when."""

    async def add(self, owned: OwnedArtifact) -> None: ...

    async def get(self, tenant: str, user: str, artifact_id: str) -> OwnedArtifact: ...

    async def expired(self, *, limit: int = 100) -> Sequence[str]: ...

    async def remove(self, artifact_ids: Sequence[str]) -> None: ...


class Artifacts:
    """Stores and serves files; each read checks the owner."""

    def __init__(
        self,
        *,
        records: ArtifactRecords,
        blobs: Blobs,
        clock: Clock,
        ids: Ids,
        lifetime: timedelta,
        max_bytes: int,
    ) -> None:
        self._records = records
        self._blobs = blobs
        self._clock = clock
        self._ids = ids
        self._lifetime = lifetime
        self._max_bytes = max_bytes

    async def keep(self, principal: Principal, name: str, chunks: AsyncIterator[bytes], run_id: str = "") -> Artifact:
        """Store a file and return it; raise InvalidRequest for its name, TooLarge for its size."""
        name = safe_name(name)
        artifact_id = self._ids.new()
        meter = _Meter(name, self._max_bytes)
        size = await self._blobs.put(artifact_id, meter.through(chunks))
        artifact = Artifact(
            artifact_id=artifact_id,
            name=name,
            media_type=media_type(name, meter.head),
            size=size,
            sha256=meter.digest.hexdigest(),
            expires_at=self._clock.now() + self._lifetime,
        )
        await self._records.add(
            OwnedArtifact(artifact=artifact, tenant=principal.tenant, user=principal.user, run_id=run_id)
        )
        return artifact

    async def open(self, principal: Principal, artifact_id: str) -> tuple[Artifact, AsyncIterator[bytes]]:
        """Return a file of the principal's and its bytes, or raise ArtifactNotFound."""
        owned = await self._records.get(principal.tenant, principal.user, artifact_id)
        return owned.artifact, self._blobs.read(artifact_id)

    async def parts(self, principal: Principal, artifact_ids: Sequence[str]) -> list[MediaPart]:
        """Return files of the principal's as parts of a message, or raise ArtifactNotFound naming the missing one."""
        parts = []
        for artifact_id in artifact_ids:
            kept = (await self._records.get(principal.tenant, principal.user, artifact_id)).artifact
            is_image = kept.media_type in PICTURES
            parts.append(
                MediaPart(media_type=kept.media_type, is_image=is_image, name=kept.name, artifact_id=artifact_id)
            )
        return parts

    @asynccontextmanager
    async def upload(self, principal: Principal, run_id: str) -> AsyncIterator[Upload]:
        """Take the pieces of several files, one file after another; what is unfinished at the end is dropped."""
        upload = Upload(self, principal, run_id)
        try:
            yield upload
        finally:
            await upload.abandon()

    async def sweep(self) -> int:
        """Delete files whose time is over, bytes first; return how many."""
        ids = list(await self._records.expired())
        for artifact_id in ids:
            await self._blobs.delete(artifact_id)
        if ids:
            await self._records.remove(ids)
        return len(ids)


class Upload:
    """Files of one run, in pieces."""

    def __init__(self, artifacts: Artifacts, principal: Principal, run_id: str) -> None:
        self._artifacts = artifacts
        self._principal = principal
        self._run_id = run_id
        self._name = ""
        self._pieces: asyncio.Queue[bytes | None] = asyncio.Queue(maxsize=_QUEUE)
        self._task: asyncio.Task[Artifact] | None = None

    async def write(self, name: str, data: bytes, *, last: bool) -> Artifact | None:
        """Take the next piece; return the file once it is whole."""
        if self._task is None:
            self._name = name
            self._pieces = asyncio.Queue(maxsize=_QUEUE)
            chunks = _drain(self._pieces)
            self._task = asyncio.create_task(self._artifacts.keep(self._principal, name, chunks, self._run_id))
        elif name != self._name:
            raise InvalidRequest(f"file '{name}' began before '{self._name}' ended")
        if data:
            await self._put(data)
        if not last:
            return None
        await self._put(None)
        task, self._task = self._task, None
        return await task

    async def _put(self, piece: bytes | None) -> None:
        """Hand a piece over; a store that failed ends the wait with its failure."""
        assert self._task is not None
        put = asyncio.ensure_future(self._pieces.put(piece))
        await asyncio.wait({put, self._task}, return_when=asyncio.FIRST_COMPLETED)
        if not put.done():
            put.cancel()
            self._task.result()

    async def abandon(self) -> None:
        """Drop a file that did not become whole."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})


async def _drain(pieces: asyncio.Queue[bytes | None]) -> AsyncIterator[bytes]:
    while (piece := await pieces.get()) is not None:
        yield piece


@dataclass(slots=True)
class _Meter:
    """Counts, hashes and bounds what flows through; keeps the head to tell the type."""

    name: str
    max_bytes: int
    digest: hashlib._Hash = field(default_factory=hashlib.sha256)
    head: bytes = b""
    size: int = 0

    async def through(self, chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
        async for chunk in chunks:
            self.size += len(chunk)
            if self.size > self.max_bytes:
                raise TooLarge(f"file '{self.name}' is larger than {self.max_bytes} bytes; make it smaller")
            if len(self.head) < 512:
                self.head += chunk[: 512 - len(self.head)]
            self.digest.update(chunk)
            yield chunk


def safe_name(name: str) -> str:
    """Return a file name without folders, controls and reserved characters; raise InvalidRequest when none is left."""
    normal = unicodedata.normalize("NFC", name.replace("\\", "/").rsplit("/", 1)[-1])
    cleaned = _FORBIDDEN.sub("", normal).strip(" .")
    if not cleaned:
        raise InvalidRequest(f"'{name!r}' is no file name; use letters, digits, dots and dashes")
    return cleaned[:200]


def media_type(name: str, head: bytes) -> str:
    """Return the type that the bytes show, else the one that the name says; never an active one on its word alone."""
    for signature, kind in _SIGNATURES:
        if head.startswith(signature):
            guessed = mimetypes.guess_type(name)[0] if kind == "application/zip" else None
            return guessed or kind
    if head[:4] == b"RIFF" and head[8:12] == b"WEBP":
        return "image/webp"
    guessed = mimetypes.guess_type(name)[0] or "application/octet-stream"
    # A name that claims a picture or a PDF whose bytes are something else is not believed.
    return "application/octet-stream" if guessed.startswith("image/") and guessed != "image/svg+xml" else guessed

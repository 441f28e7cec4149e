"""Files that runs made, and attachments for messages."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import artifact_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.backends import STREAM_TIMEOUT
from services.gateway.dependencies import PartsDep
from services.gateway.ingest import check_files
from services.gateway.problems import BadInput
from services.gateway.replies import json_reply
from services.gateway.uploads import PartBegins, PartBytes, PartEnds, read_parts

router = APIRouter(prefix="/v1", tags=["artifacts"])

# Types a browser shows without running anything; SVG is not among them, it can carry scripts.
INLINE = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
ARTIFACT_POLICY = "default-src 'none'; sandbox"
FILE: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["file"],
                    "properties": {"file": {"type": "string", "format": "binary"}},
                }
            }
        },
    }
}


@router.get(
    "/artifacts/{artifact_id}",
    responses={200: {"description": "The bytes.", "content": {"application/octet-stream": {}}}},
    response_class=Response,
)
async def get_artifact(artifact_id: str, parts: PartsDep, caller: Asker) -> Response:
    """Download a file. Safe images may be shown in place; everything else is an attachment."""
    call = parts.backends.artifacts.GetArtifact(
        pb.GetArtifactRequest(artifact_id=artifact_id), metadata=parts.metadata(caller), timeout=STREAM_TIMEOUT
    )
    try:
        first = await anext(aiter(call))
    except BaseException:
        call.cancel()
        raise
    headers = artifact_headers(first.artifact)

    async def content() -> AsyncGenerator[bytes]:
        try:
            async for reply in call:
                yield reply.chunk
        finally:
            call.cancel()

    return StreamingResponse(content(), headers=headers)


def artifact_headers(artifact: agent_pb2.Artifact) -> dict[str, str]:
    """Return headers under which hostile bytes do no harm: not sniffed, sandboxed, downloaded unless an image."""
    inline = artifact.media_type in INLINE
    name = quote(artifact.name or artifact.artifact_id, safe="")
    return {
        "Content-Type": artifact.media_type if inline else "application/octet-stream",
        "Content-Length": str(artifact.size),
        "Content-Disposition": f"{'inline' if inline else 'attachment'}; filename*=UTF-8''{name}",
        "Content-Security-Policy": ARTIFACT_POLICY,
        "Cache-Control": "private, max-age=31536000, immutable",
        "ETag": f'"{artifact.sha256}"',
    }


@router.post(
    "/attachments",
    status_code=201,
    responses=openapi.answers(agent_pb2.Artifact, 201),
    openapi_extra=FILE,
    response_class=Response,
)
async def upload_attachment(request: Request, parts: PartsDep, caller: Asker) -> Response:
    """Store a file for a later message; its id goes into `attachments`."""
    upload = _Attachment(request)
    async with aclosing(upload.messages()) as messages:
        reply = await parts.backends.artifacts.UploadAttachment(
            messages, metadata=parts.metadata(caller), timeout=STREAM_TIMEOUT
        )
    if upload.failure is not None:
        raise upload.failure
    return json_reply(reply.artifact, 201)


class _Attachment:
    """The one file of a request."""

    def __init__(self, request: Request) -> None:
        self._request = request
        self.failure: BadInput | None = None

    async def messages(self) -> AsyncGenerator[pb.UploadAttachmentRequest]:
        open_file = False
        files = 0
        try:
            async for event in read_parts(self._request):
                match event:
                    case PartBegins(filename=""):
                        open_file = False
                    case PartBegins(filename=name, media_type=media_type):
                        files += 1
                        check_files(files, most=1)
                        open_file = True
                        yield pb.UploadAttachmentRequest(header=pb.UploadHeader(name=name, media_type=media_type))
                    case PartBytes(data=data) if open_file:
                        yield pb.UploadAttachmentRequest(chunk=data)
                    case PartBytes() | PartEnds():
                        pass
            check_files(files)
        except BadInput as error:
            self.failure = error

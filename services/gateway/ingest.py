"""One upload on its way to the retrieval service: multipart parts in, progress out, both at once."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator
from typing import Any

import orjson
from fastapi import Request

from proctor.retrieval.v1 import source_service_pb2 as pb
from services.gateway.auth import Caller
from services.gateway.backends import STREAM_TIMEOUT
from services.gateway.dependencies import Parts
from services.gateway.problems import BadInput, problem_of
from services.gateway.protojson import to_json, to_json_bytes
from services.gateway.uploads import PartBegins, PartBytes, PartEnds, read_parts

DONE, FAILED = pb.DocumentState.DOCUMENT_STATE_DONE, pb.DocumentState.DOCUMENT_STATE_FAILED
# Most bytes of one plain field.
FIELD_LIMIT = 64 * 1024
MOST_FILES = 10_000


class Upload:
    """The files of one request. Fields `path`, `url` and `metadata.<name>` before a file belong to that file."""

    def __init__(self, request: Request, source_id: str) -> None:
        self._request = request
        self._source_id = source_id
        self.failure: BadInput | None = None

    async def messages(self) -> AsyncIterator[pb.IngestDocumentsRequest]:
        """Yield what IngestDocuments takes. A damaged body ends the stream; `failure` then says why."""
        fields: dict[str, str] = {}
        field: PartBegins | None = None
        text = bytearray()
        files = 0
        try:
            async for event in read_parts(self._request):
                match event:
                    case PartBegins(filename=""):
                        field, text = event, bytearray()
                    case PartBegins():
                        field = None
                        files += 1
                        yield pb.IngestDocumentsRequest(header=self._header(event, fields))
                        fields = {}
                    case PartBytes(data=data) if field is not None:
                        text += data
                        check_field(field.name, text)
                    case PartBytes(data=data):
                        yield pb.IngestDocumentsRequest(chunk=data)
                    case PartEnds() if field is not None:
                        fields[field.name] = text.decode("utf-8", "replace")
                    case PartEnds():
                        yield pb.IngestDocumentsRequest(end=True)
            check_files(files)
        except BadInput as error:
            self.failure = error

    def _header(self, part: PartBegins, fields: dict[str, str]) -> pb.DocumentHeader:
        metadata = {
            name.removeprefix("metadata."): text for name, text in fields.items() if name.startswith("metadata.")
        }
        return pb.DocumentHeader(
            source_id=self._source_id,
            path=fields.get("path") or part.filename,
            media_type=part.media_type,
            url=fields.get("url", ""),
            metadata=metadata,
        )


def check_field(name: str, text: bytes | bytearray) -> None:
    """Raise BadInput when a plain field is too large."""
    if len(text) > FIELD_LIMIT:
        raise BadInput(f"the field '{name}' is larger than {FIELD_LIMIT} bytes")


def check_files(count: int, most: int = MOST_FILES) -> None:
    """Raise BadInput when a body holds no file, or more than `most`."""
    if count == 0:
        raise BadInput("the body holds no file; send it as the part 'file'")
    if count > most:
        raise BadInput(f"the body holds more than {most} file(s); send several requests")


async def progress(parts: Parts, caller: Caller, upload: Upload) -> AsyncGenerator[pb.IngestDocumentsResponse]:
    """Send the upload and yield the progress of its files; raise what broke it."""
    call = parts.backends.sources.IngestDocuments(
        upload.messages(), metadata=parts.metadata(caller), timeout=STREAM_TIMEOUT
    )
    try:
        async for reply in call:
            yield reply
        if upload.failure is not None:
            raise upload.failure
    finally:
        call.cancel()


async def as_events(replies: AsyncGenerator[pb.IngestDocumentsResponse]) -> AsyncGenerator[bytes]:
    """Yield progress as server-sent events `progress`, at the end one `summary` or one `error`."""
    last: dict[str, pb.IngestDocumentsResponse] = {}
    try:
        async for reply in replies:
            last[reply.path] = reply
            yield b"event: progress\ndata: %s\n\n" % to_json_bytes(reply)
    except Exception as error:  # noqa: BLE001  # the response has begun: the failure can only be its last event
        yield b"event: error\ndata: %s\n\n" % orjson.dumps(problem_of(error).body())
    else:
        yield b"event: summary\ndata: %s\n\n" % orjson.dumps(summary(last))


async def as_summary(replies: AsyncGenerator[pb.IngestDocumentsResponse]) -> dict[str, Any]:
    """Return the last state of each file and the counts."""
    return summary({reply.path: reply async for reply in replies})


def summary(last: dict[str, pb.IngestDocumentsResponse]) -> dict[str, Any]:
    """Return counts and the last state of each file."""
    return {
        "documents": len(last),
        "done": sum(reply.state == DONE for reply in last.values()),
        "unchanged": sum(reply.unchanged for reply in last.values()),
        "failed": sum(reply.state == FAILED for reply in last.values()),
        "files": [to_json(reply) for reply in last.values()],
    }

"""One WebSocket session: any number of runs started, watched, resumed and cancelled over one connection.

The client sends `{"type", "id", …}`; every answer carries the same `id`. Events are those of the native wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import aclosing
from typing import Annotated, Any, Literal

import grpc
import orjson
from pydantic import Field, TypeAdapter, ValidationError
from starlette.websockets import WebSocket, WebSocketDisconnect

from services.chassis.errors import Overloaded, ServiceError
from services.gateway.access import APPROVALS_DECIDE, RUNS, require_any
from services.gateway.auth import Caller
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.bodies.approvals import Decide
from services.gateway.bodies.base import Body
from services.gateway.bodies.runs import ResumeRun, StartRun
from services.gateway.dependencies import Parts
from services.gateway.problems import BadInput, problem_of
from services.gateway.projections import native
from services.gateway.protojson import dumps, to_json
from services.gateway.streams import Batches

# Streams one connection may have open at once.
MOST_STREAMS = 32
Reference = Annotated[str, Field(min_length=1, max_length=64)]
RunId = Annotated[str, Field(min_length=1, max_length=64)]


class Start(Body):
    """Start a run and stream its events."""

    type: Literal["start"]
    id: Reference
    body: StartRun


class Watch(Body):
    """Stream a run's events after a sequence."""

    type: Literal["watch"]
    id: Reference
    run_id: RunId
    after: int = Field(default=0, ge=0, le=2**63 - 1)


class Resume(Body):
    """Bring decisions to a paused run and stream what follows."""

    type: Literal["resume"]
    id: Reference
    run_id: RunId
    body: ResumeRun


class Cancel(Body):
    """Stop a run."""

    type: Literal["cancel"]
    id: Reference
    run_id: RunId


class DecideApproval(Body):
    """Decide an approval record."""

    type: Literal["decide"]
    id: Reference
    approval_id: Annotated[str, Field(min_length=1, max_length=128)]
    body: Decide


class Leave(Body):
    """Stop streaming under an id; the run goes on."""

    type: Literal["leave"]
    id: Reference


class Ping(Body):
    """Ask whether the server is there."""

    type: Literal["ping"]
    id: Reference = "ping"


Request = Start | Watch | Resume | Cancel | DecideApproval | Leave | Ping
_REQUEST: TypeAdapter[Request] = TypeAdapter(Annotated[Request, Field(discriminator="type")])


class Session:
    """Serves one accepted connection of an authenticated caller until either side ends it."""

    def __init__(self, socket: WebSocket, parts: Parts, caller: Caller) -> None:
        self._socket = socket
        self._parts = parts
        self._caller = caller
        self._streams: dict[str, asyncio.Task[None]] = {}
        self._sending = asyncio.Lock()

    async def serve(self) -> None:
        """Answer messages until the client leaves, its credential lapses or the gateway stops."""
        ends = [asyncio.ensure_future(event.wait()) for event in (self._caller.lapsed, self._parts.draining)]
        reading = asyncio.ensure_future(self._read())
        try:
            await asyncio.wait([reading, *ends], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                # 1012: the client should come back; 4401: only with another credential.
                await self._socket.close(4401 if self._caller.lapsed.is_set() else 1012)
        finally:
            tasks: list[asyncio.Future[Any]] = [reading, *ends, *self._streams.values()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def _read(self) -> None:
        while True:
            try:
                text = await self._socket.receive_text()
            except (WebSocketDisconnect, KeyError):  # KeyError: a binary message
                return
            reference = ""
            try:
                request = _parse(text)
                reference = request.id
                await self._take(request)
            except (ServiceError, grpc.RpcError) as error:
                await self._tell(reference, "error", problem_of(error).body())

    async def _take(self, request: Request) -> None:
        parts, principal = self._parts, self._caller.principal
        match request:
            case Start(id=reference, body=body):
                start = body.to_proto()
                start.request_id = start.request_id or f"gw:{parts.ids.new()}"
                self._open(reference, lambda: parts.streams.start(principal, start))
            case Watch(id=reference, run_id=run_id, after=after):
                self._open(reference, lambda: parts.streams.watch(principal, run_id, after))
            case Resume(id=reference, run_id=run_id, body=resume):
                decisions = resume.to_proto(run_id)
                self._open(reference, lambda: parts.streams.resume(principal, decisions))
            case Cancel(id=reference, run_id=run_id):
                require_any(self._caller, (RUNS,))
                await parts.streams.cancel(principal, run_id)
                await self._tell(reference, "result", {"run_id": run_id})
            case DecideApproval(id=reference, approval_id=approval_id, body=decision):
                require_any(self._caller, (RUNS, APPROVALS_DECIDE))
                reply = await parts.backends.approvals.Decide(
                    decision.to_proto(approval_id), metadata=parts.metadata(self._caller), timeout=UNARY_TIMEOUT
                )
                await self._tell(reference, "result", to_json(reply))
            case Leave(id=reference):
                stream = self._streams.pop(reference, None)
                if stream is not None:
                    stream.cancel()
                await self._tell(reference, "result", {})
            case Ping(id=reference):
                await self._tell(reference, "pong", {})

    def _open(self, reference: str, batches: Callable[[], Batches]) -> None:
        require_any(self._caller, (RUNS,))
        if reference in self._streams:
            raise BadInput(f"the id '{reference}' already names an open stream; use another")
        if len(self._streams) >= MOST_STREAMS:
            raise Overloaded(f"a connection may have {MOST_STREAMS} streams open; leave one or open another connection")
        task = asyncio.create_task(self._stream(reference, batches()), name=f"ws {reference}")
        self._streams[reference] = task
        task.add_done_callback(lambda done: self._closed(reference, done))

    def _closed(self, reference: str, task: asyncio.Task[None]) -> None:
        if self._streams.get(reference) is task:
            del self._streams[reference]

    async def _stream(self, reference: str, batches: Batches) -> None:
        try:
            async with aclosing(batches):
                async for batch in batches:
                    for event in batch:
                        await self._send(
                            b'{"type":"event","id":%s,"event":%s}' % (orjson.dumps(reference), native.encode(event))
                        )
            await self._tell(reference, "done", {})
        except (ServiceError, grpc.RpcError) as error:
            await self._tell(reference, "error", problem_of(error).body())

    async def _tell(self, reference: str, kind: str, value: Any) -> None:
        await self._send(dumps({"type": kind, "id": reference, kind: value}))

    async def _send(self, message: bytes) -> None:
        async with self._sending:
            await self._socket.send_text(message.decode())


def _parse(text: str) -> Request:
    try:
        return _REQUEST.validate_json(text)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        raise BadInput(f"{where or 'message'}: {first['msg']}") from error

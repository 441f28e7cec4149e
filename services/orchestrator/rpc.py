"""The orchestrator's RPCs: parse, call one use case, render."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import aclosing
from datetime import UTC, datetime, timedelta
from typing import Any

import grpc

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import (
    artifact_service_pb2,
    artifact_service_pb2_grpc,
    run_service_pb2,
    run_service_pb2_grpc,
)
from services.chassis.errors import InvalidRequest
from services.chassis.identity import current_principal
from services.chassis.paging import decode_token, encode_token
from services.orchestrator import codec
from services.orchestrator.artifacts import Artifacts
from services.orchestrator.codec_events import frame
from services.orchestrator.codec_reflect import to_pb
from services.orchestrator.domain.events import StampedEvent
from services.orchestrator.domain.run import Run, RunState
from services.orchestrator.journal.feed import Feed
from services.orchestrator.metrics import StreamMetrics
from services.orchestrator.runs import Runs
from services.orchestrator.streams import counted, follow

DEFAULT_PAGE = 50
Context = grpc.aio.ServicerContext[Any, Any]


class RunServicer(run_service_pb2_grpc.RunServiceServicer):
    """Runs. Streams carry events that were encoded once, when they were recorded."""

    def __init__(self, runs: Runs, feed: Feed, heartbeat: timedelta, metrics: StreamMetrics) -> None:
        self._runs = runs
        self._feed = feed
        self._heartbeat = heartbeat
        self._metrics = metrics

    async def StartRun(self, request: run_service_pb2.StartRunRequest, context: Context) -> AsyncIterator[bytes]:  # type: ignore[override]
        principal = current_principal()
        started = await self._runs.start(principal, codec.start_run(request))
        ended = False
        try:
            # Nobody was there before a run that has just begun: none of its events is sent again.
            known = started.run.last_sequence if started.joined else 0
            async for message in self._follow(started.run, 0, _hold(request), known=known):
                yield message
            ended = True
        finally:
            # The stream broke off before its end: the client went away.
            if not ended and request.on_disconnect == run_service_pb2.ON_DISCONNECT_CANCEL:
                await self._runs.cancel(principal, started.run.run_id)

    async def WatchRun(self, request: run_service_pb2.WatchRunRequest, context: Context) -> AsyncIterator[bytes]:  # type: ignore[override]
        run = await self._runs.get(current_principal(), request.run_id)
        live = not request.replay_only
        stream = self._follow(run, request.after_sequence, _hold(request), known=run.last_sequence, live=live)
        async for message in stream:
            yield message

    async def ResumeRun(self, request: run_service_pb2.ResumeRunRequest, context: Context) -> AsyncIterator[bytes]:  # type: ignore[override]
        run = await self._runs.resume(current_principal(), request.run_id, codec.decisions(request), request.text)
        after = request.after_sequence or run.last_sequence
        async for message in self._follow(run, after, _hold(request), known=run.last_sequence):
            yield message

    async def CancelRun(
        self, request: run_service_pb2.CancelRunRequest, context: Context
    ) -> run_service_pb2.CancelRunResponse:
        run = await self._runs.cancel(current_principal(), request.run_id)
        return run_service_pb2.CancelRunResponse(state=run_service_pb2.RunState.ValueType(run.state))

    async def GetRun(self, request: run_service_pb2.GetRunRequest, context: Context) -> run_service_pb2.GetRunResponse:
        run = await self._runs.get(current_principal(), request.run_id)
        return run_service_pb2.GetRunResponse(run=codec.run_to_pb(run))

    async def ListRuns(
        self, request: run_service_pb2.ListRunsRequest, context: Context
    ) -> run_service_pb2.ListRunsResponse:
        limit = request.page_size or DEFAULT_PAGE
        states = tuple(RunState(state) for state in request.states)
        scope = f"runs:{request.conversation_id}:{','.join(str(int(s)) for s in states)}"
        after = None
        if request.page_token:
            stamp, run_id = decode_token(scope, request.page_token)
            after = (datetime.fromtimestamp(float(stamp), UTC), str(run_id))
        runs = await self._runs.page(
            current_principal(),
            states=states,
            conversation_id=request.conversation_id,
            limit=limit,
            after=after,
        )
        more = len(runs) == limit
        token = encode_token(scope, runs[-1].created_at.timestamp(), runs[-1].run_id) if more else ""
        return run_service_pb2.ListRunsResponse(runs=[codec.run_to_pb(run) for run in runs], next_page_token=token)

    async def EndKey(self, request: run_service_pb2.EndKeyRequest, context: Context) -> run_service_pb2.EndKeyResponse:
        await self._runs.end_key(current_principal(), request.key_id)
        return run_service_pb2.EndKeyResponse()

    async def _follow(
        self, run: Run, after: int, hold: timedelta | None, *, known: int, live: bool = True
    ) -> AsyncIterator[bytes]:
        batches = follow(self._feed, run.run_id, after=after, hold=hold, heartbeat=self._heartbeat, live=live)
        async with aclosing(counted(batches, self._metrics, after=after, known=known)) as told:
            async for batch in told:
                yield _encode(batch)


class ArtifactServicer(artifact_service_pb2_grpc.ArtifactServiceServicer):
    """Files of runs and messages."""

    def __init__(self, artifacts: Artifacts) -> None:
        self._artifacts = artifacts

    async def GetArtifact(
        self, request: artifact_service_pb2.GetArtifactRequest, context: Context
    ) -> AsyncIterator[artifact_service_pb2.GetArtifactResponse]:
        artifact, chunks = await self._artifacts.open(current_principal(), request.artifact_id)
        yield artifact_service_pb2.GetArtifactResponse(artifact=to_pb(artifact, agent_pb2.Artifact))
        async for chunk in chunks:
            yield artifact_service_pb2.GetArtifactResponse(chunk=chunk)

    async def UploadAttachment(
        self,
        request_iterator: AsyncIterator[artifact_service_pb2.UploadAttachmentRequest],
        context: Context,
    ) -> artifact_service_pb2.UploadAttachmentResponse:
        first = await anext(aiter(request_iterator), None)
        if first is None or first.WhichOneof("payload") != "header":
            raise InvalidRequest("an upload begins with a header; send the file's name first")
        chunks = (message.chunk async for message in request_iterator)
        artifact = await self._artifacts.keep(current_principal(), first.header.name, chunks)
        return artifact_service_pb2.UploadAttachmentResponse(artifact=to_pb(artifact, agent_pb2.Artifact))


def _encode(batch: tuple[StampedEvent, ...]) -> bytes:
    """Return the bytes of any of the three response messages: their one field is the same."""
    return frame(batch)


def _hold(
    request: run_service_pb2.StartRunRequest | run_service_pb2.WatchRunRequest | run_service_pb2.ResumeRunRequest,
) -> timedelta | None:
    return codec.hold_of(request.hold if request.HasField("hold") else None)

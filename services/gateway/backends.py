"""Typed access to the services behind the gateway, and their health."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from proctor.approval.v1 import approval_service_pb2_grpc as approval
from proctor.orchestrator.v1 import agent_service_pb2_grpc as agents
from proctor.orchestrator.v1 import artifact_service_pb2_grpc as artifacts
from proctor.orchestrator.v1 import conversation_service_pb2_grpc as conversations
from proctor.orchestrator.v1 import memory_service_pb2_grpc as memories
from proctor.orchestrator.v1 import model_service_pb2_grpc as models
from proctor.orchestrator.v1 import run_service_pb2_grpc as runs
from proctor.orchestrator.v1 import tool_service_pb2_grpc as tools
from proctor.orchestrator.v1 import usage_service_pb2_grpc as usage
from proctor.retrieval.v1 import retrieval_service_pb2_grpc as retrieval
from proctor.retrieval.v1 import source_service_pb2_grpc as sources

if TYPE_CHECKING:
    from grpc.aio import Channel

# Services by name: without the first three nothing useful can be asked, the sandbox only narrows what agents can do.
REQUIRED = ("orchestrator", "retrieval", "approval")
HEALTH_TIMEOUT = 2.0
UNARY_TIMEOUT = 30.0
# The longest a stream stays open before it is watched again: the servers' connection age.
STREAM_TIMEOUT = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Backends:
    """One stub per backend service."""

    runs: runs.RunServiceAsyncStub
    agents: agents.AgentServiceAsyncStub
    models: models.ModelServiceAsyncStub
    artifacts: artifacts.ArtifactServiceAsyncStub
    conversations: conversations.ConversationServiceAsyncStub
    tools: tools.ToolServiceAsyncStub
    usage: usage.UsageServiceAsyncStub
    memories: memories.MemoryServiceAsyncStub
    retrieval: retrieval.RetrievalServiceAsyncStub
    sources: sources.SourceServiceAsyncStub
    approvals: approval.ApprovalServiceAsyncStub
    channels: Mapping[str, Channel]

    async def health(self) -> dict[str, str]:
        """Return each service's state: SERVING, NOT_SERVING or UNREACHABLE."""
        names = list(self.channels)
        states = await asyncio.gather(*(_state(self.channels[name]) for name in names))
        return dict(zip(names, states, strict=True))


def connect(channels: Mapping[str, Channel]) -> Backends:
    """Return stubs over `channels`, keyed orchestrator, retrieval, approval and sandbox."""
    orchestrator, retrieval_channel = channels["orchestrator"], channels["retrieval"]
    return Backends(
        runs=runs.RunServiceStub(orchestrator),
        agents=agents.AgentServiceStub(orchestrator),
        models=models.ModelServiceStub(orchestrator),
        artifacts=artifacts.ArtifactServiceStub(orchestrator),
        conversations=conversations.ConversationServiceStub(orchestrator),
        tools=tools.ToolServiceStub(orchestrator),
        usage=usage.UsageServiceStub(orchestrator),
        memories=memories.MemoryServiceStub(orchestrator),
        retrieval=retrieval.RetrievalServiceStub(retrieval_channel),
        sources=sources.SourceServiceStub(retrieval_channel),
        approvals=approval.ApprovalServiceStub(channels["approval"]),
        channels=channels,
    )


async def _state(channel: Channel) -> str:
    stub = cast("health_pb2_grpc.HealthAsyncStub", health_pb2_grpc.HealthStub(channel))
    try:
        reply = await stub.Check(health_pb2.HealthCheckRequest(), timeout=HEALTH_TIMEOUT)
    except grpc.RpcError:
        return "UNREACHABLE"
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(reply.status))

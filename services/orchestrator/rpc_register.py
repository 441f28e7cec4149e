"""The gRPC services of this process and how a server gets them."""

from __future__ import annotations

from dataclasses import dataclass

import grpc

from proctor.orchestrator.v1 import agent_service_pb2_grpc as agent_grpc
from proctor.orchestrator.v1 import artifact_service_pb2_grpc as artifact_grpc
from proctor.orchestrator.v1 import conversation_service_pb2_grpc as conversation_grpc
from proctor.orchestrator.v1 import memory_service_pb2_grpc as memory_grpc
from proctor.orchestrator.v1 import model_service_pb2_grpc as model_grpc
from proctor.orchestrator.v1 import run_service_pb2_grpc as run_grpc
from proctor.orchestrator.v1 import tool_service_pb2_grpc as tool_grpc
from proctor.orchestrator.v1 import usage_service_pb2_grpc as usage_grpc
from services.chassis.streaming import raw_streaming
from services.orchestrator.rpc import ArtifactServicer, RunServicer
from services.orchestrator.rpc_agents import AgentServicer
from services.orchestrator.rpc_conversations import ConversationServicer, UsageServicer
from services.orchestrator.rpc_memories import MemoryServicer
from services.orchestrator.rpc_models import ModelServicer
from services.orchestrator.rpc_tools import ToolServicer

GRPC_SERVICES = (
    "proctor.orchestrator.v1.RunService",
    "proctor.orchestrator.v1.AgentService",
    "proctor.orchestrator.v1.ModelService",
    "proctor.orchestrator.v1.ArtifactService",
    "proctor.orchestrator.v1.ConversationService",
    "proctor.orchestrator.v1.UsageService",
    "proctor.orchestrator.v1.MemoryService",
    "proctor.orchestrator.v1.ToolService",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Servicers:
    """One of each service."""

    runs: RunServicer
    agents: AgentServicer
    models: ModelServicer
    artifacts: ArtifactServicer
    conversations: ConversationServicer
    usage: UsageServicer
    memories: MemoryServicer
    tools: ToolServicer

    def register(self, server: grpc.aio.Server) -> None:
        """Add all of GRPC_SERVICES to a server."""
        raw_streaming(run_grpc.add_RunServiceServicer_to_server)(self.runs, server)
        agent_grpc.add_AgentServiceServicer_to_server(self.agents, server)
        model_grpc.add_ModelServiceServicer_to_server(self.models, server)
        artifact_grpc.add_ArtifactServiceServicer_to_server(self.artifacts, server)
        conversation_grpc.add_ConversationServiceServicer_to_server(self.conversations, server)
        usage_grpc.add_UsageServiceServicer_to_server(self.usage, server)
        memory_grpc.add_MemoryServiceServicer_to_server(self.memories, server)
        tool_grpc.add_ToolServiceServicer_to_server(self.tools, server)

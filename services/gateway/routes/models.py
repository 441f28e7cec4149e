"""Models, in OpenAI's form with our own facts beside; agents appear too, as `agent/<name>`."""

from __future__ import annotations

from typing import Any

import grpc
from fastapi import APIRouter
from fastapi.responses import JSONResponse

from proctor.agent.v1 import agent_pb2
from proctor.orchestrator.v1 import agent_service_pb2, model_service_pb2
from services.chassis.errors import ServiceError
from services.gateway.access import Asker
from services.gateway.auth import Caller
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.dependencies import Parts, PartsDep
from services.gateway.protojson import to_json


class ModelNotFound(ServiceError):
    """The named model does not exist."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "MODEL_NOT_FOUND"


router = APIRouter(prefix="/v1/models", tags=["models"])

AGENT_PREFIX = "agent/"
# The catalogue is short; this many pages of 500 bound it.
MOST_PAGES = 20


@router.get("")
async def list_models(parts: PartsDep, caller: Asker) -> JSONResponse:
    """List the models and agents that `model` may name in an OpenAI request."""
    entries = [_model_entry(model) for model in await all_models(parts, caller)]
    entries += [_agent_entry(agent) for agent in await _agents(parts, caller)]
    return JSONResponse({"object": "list", "data": entries})


@router.get("/{model_id:path}")
async def get_model(model_id: str, parts: PartsDep, caller: Asker) -> JSONResponse:
    """Return one of them."""
    for model in await all_models(parts, caller):
        if model.model_id == model_id:
            return JSONResponse(_model_entry(model))
    for agent in await _agents(parts, caller):
        if f"{AGENT_PREFIX}{agent.name}" == model_id:
            return JSONResponse(_agent_entry(agent))
    raise ModelNotFound(f"there is no model '{model_id}'; GET /v1/models lists them", metadata={"model": model_id})


async def all_models(parts: Parts, caller: Caller) -> list[model_service_pb2.Model]:
    """Return every model that the caller may use: the operator's, then their own."""
    models: list[model_service_pb2.Model] = []
    request = model_service_pb2.ListModelsRequest(page_size=500)
    for _ in range(MOST_PAGES):
        reply = await parts.backends.models.ListModels(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
        models += reply.models
        if not reply.next_page_token:
            break
        request.page_token = reply.next_page_token
    return models


async def _agents(parts: Parts, caller: Caller) -> list[agent_pb2.Agent]:
    agents: list[agent_pb2.Agent] = []
    request = agent_service_pb2.ListAgentsRequest(page_size=500)
    for _ in range(MOST_PAGES):
        reply = await parts.backends.agents.ListAgents(request, metadata=parts.metadata(caller), timeout=UNARY_TIMEOUT)
        agents += reply.agents
        if not reply.next_page_token:
            break
        request.page_token = reply.next_page_token
    return [agent for agent in agents if caller.agent in ("", agent.agent_id, agent.name)]


def _model_entry(model: model_service_pb2.Model) -> dict[str, Any]:
    owner = model.owner or "operator"
    return {"id": model.model_id, "object": "model", "created": 0, "owned_by": owner, "proctor": to_json(model)}


def _agent_entry(agent: agent_pb2.Agent) -> dict[str, Any]:
    facts = {"agent_id": agent.agent_id, "name": agent.name, "description": agent.description}
    return {"id": f"{AGENT_PREFIX}{agent.name}", "object": "model", "created": 0, "owned_by": "agent", "proctor": facts}

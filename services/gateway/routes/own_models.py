"""Models of the caller's own."""

from __future__ import annotations

from fastapi import APIRouter, Response

from proctor.orchestrator.v1 import model_service_pb2 as pb
from services.gateway import openapi
from services.gateway.access import Asker
from services.gateway.backends import UNARY_TIMEOUT
from services.gateway.bodies.models import OwnModel
from services.gateway.dependencies import PartsDep
from services.gateway.replies import json_reply
from services.gateway.routes.agents import unbound
from services.gateway.routes.models import all_models

router = APIRouter(prefix="/v1/models/own", tags=["models"])


@router.get("", responses=openapi.answers(pb.ListModelsResponse), response_class=Response)
async def list_own_models(parts: PartsDep, caller: Asker) -> Response:
    """List the caller's own models, without their keys."""
    models = await all_models(parts, unbound(caller))
    return json_reply(pb.ListModelsResponse(models=[model for model in models if model.own]))


@router.post("", status_code=201, responses=openapi.answers(pb.Model, 201), response_class=Response)
async def create_own_model(body: OwnModel, parts: PartsDep, caller: Asker) -> Response:
    """Keep a model of one's own. Its URL must lead to public addresses, when it is saved and at each call."""
    reply = await parts.backends.models.CreateModel(
        pb.CreateModelRequest(definition=body.to_proto()),
        metadata=parts.metadata(unbound(caller)),
        timeout=UNARY_TIMEOUT,
    )
    return json_reply(reply.model, 201)


@router.put("/{model_id}", responses=openapi.answers(pb.Model), response_class=Response)
async def update_own_model(model_id: str, body: OwnModel, parts: PartsDep, caller: Asker) -> Response:
    """Put another definition in place; without a key the stored one stays, unless the URL changes."""
    reply = await parts.backends.models.UpdateModel(
        pb.UpdateModelRequest(model_id=model_id, definition=body.to_proto()),
        metadata=parts.metadata(unbound(caller)),
        timeout=UNARY_TIMEOUT,
    )
    return json_reply(reply.model)


@router.delete("/{model_id}", status_code=204)
async def delete_own_model(model_id: str, parts: PartsDep, caller: Asker) -> Response:
    """Forget a model of one's own and its key."""
    await parts.backends.models.DeleteModel(
        pb.DeleteModelRequest(model_id=model_id), metadata=parts.metadata(unbound(caller)), timeout=UNARY_TIMEOUT
    )
    return Response(status_code=204)

"""ModelService: the catalogue, and users' own models."""

from __future__ import annotations

from typing import Any

import grpc

from proctor.orchestrator.v1 import model_service_pb2 as pb
from proctor.orchestrator.v1 import model_service_pb2_grpc
from services.chassis.errors import InvalidRequest, NotConfigured
from services.chassis.identity import current_principal
from services.chassis.paging import decode_token, encode_token
from services.chassis.settings import Secret
from services.orchestrator.models.model_settings import DEFAULT_CAPABILITIES, Api
from services.orchestrator.models.own.catalogue import JoinedCatalogue
from services.orchestrator.models.own.models import PREFIX, OwnModels
from services.orchestrator.models.own.ports import Definition
from services.orchestrator.models.ports import ModelInfo, Purpose

DEFAULT_PAGE = 100
_SCOPE = "models"
Context = grpc.aio.ServicerContext[Any, Any]


class ModelServicer(model_service_pb2_grpc.ModelServiceServicer):
    """Models that a principal may use. Without `own` users cannot keep any."""

    def __init__(self, catalogue: JoinedCatalogue, own: OwnModels | None) -> None:
        self._catalogue = catalogue
        self._own = own

    async def ListModels(self, request: pb.ListModelsRequest, context: Context) -> pb.ListModelsResponse:
        models = self._catalogue.list_for(current_principal())
        start = decode_token(_SCOPE, request.page_token)[0] if request.page_token else 0
        if not isinstance(start, int):
            raise InvalidRequest("the page token is not one of this list; begin at the first page")
        end = start + (request.page_size or DEFAULT_PAGE)
        token = encode_token(_SCOPE, end) if end < len(models) else ""
        return pb.ListModelsResponse(models=[self._shown(m) for m in models[start:end]], next_page_token=token)

    async def CreateModel(self, request: pb.CreateModelRequest, context: Context) -> pb.CreateModelResponse:
        row = await self._kept().create(current_principal(), _definition(request.definition))
        return pb.CreateModelResponse(model=self._shown(self._catalogue.get(row.model_id)))

    async def UpdateModel(self, request: pb.UpdateModelRequest, context: Context) -> pb.UpdateModelResponse:
        definition = _definition(request.definition)
        row = await self._kept().update(current_principal(), request.model_id, definition)
        return pb.UpdateModelResponse(model=self._shown(self._catalogue.get(row.model_id)))

    async def DeleteModel(self, request: pb.DeleteModelRequest, context: Context) -> pb.DeleteModelResponse:
        await self._kept().delete(current_principal(), request.model_id)
        return pb.DeleteModelResponse()

    def _kept(self) -> OwnModels:
        if self._own is None:
            raise NotConfigured("users' own models are not kept here; ask the operator for a store and a vault")
        return self._own

    def _shown(self, info: ModelInfo) -> pb.Model:
        shown = pb.Model(
            model_id=info.model_id,
            upstream_name=info.upstream_name,
            window=info.window,
            output_limit=info.output_limit,
            capabilities=sorted(info.capabilities),
            is_default=info.model_id == self._catalogue.default(Purpose.ANSWER).model_id,
            owner=info.owner,
            description=info.description,
        )
        if self._own is not None and info.model_id.startswith(PREFIX):
            row = self._own.get(current_principal(), info.model_id)
            shown.own = True
            shown.name, shown.base_url = row.definition.name, row.definition.base_url
            shown.api, shown.has_key = row.definition.api.value, self._own.has_key(row)
        return shown


def _definition(message: pb.ModelDefinition) -> Definition:
    return Definition(
        name=message.name.strip(),
        base_url=message.base_url,
        upstream_name=message.upstream_name,
        api=Api(message.api or Api.CHAT.value),
        api_key=Secret(message.api_key),
        window=message.window,
        output_limit=message.output_limit,
        capabilities=frozenset(message.capabilities) or DEFAULT_CAPABILITIES,
        description=message.description,
    )

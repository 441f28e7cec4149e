"""ModelService over a real socket."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import grpc
import pytest

from proctor.orchestrator.v1 import model_service_pb2 as pb
from proctor.orchestrator.v1 import model_service_pb2_grpc
from services.chassis.errors import from_rpc_error
from services.chassis.identity import Principal
from services.chassis.serve import Service
from services.chassis.settings import Secret
from services.chassis.telemetry import no_telemetry
from services.orchestrator.adapters.sql.database import Database
from services.orchestrator.adapters.sql.own_models import SqlOwnModels
from services.orchestrator.models.compose import Models, Ownership, build_models
from services.orchestrator.models.own.addresses import UrlGuard
from services.orchestrator.models.own.vault import vault_of
from services.orchestrator.rpc_models import ModelServicer
from tests.support.clock import FakeClock, SequentialIds
from tests.support.platform import principal
from tests.support.servers import Served, nothing, serve

ANN, EVE = principal("ann"), principal("ann", "rival")


async def public(host: str, port: int) -> list[str]:
    return ["10.0.0.1"] if host == "inside.example.org" else ["93.184.216.34"]


@asynccontextmanager
async def served(tmp_path: Path, *, keeps: bool = True) -> AsyncIterator[Served]:
    database = await Database.open(f"sqlite:///{tmp_path / 'own.sqlite3'}", FakeClock())
    ownership = Ownership(
        store=SqlOwnModels(database.engine),
        vault=vault_of(Secret("v" * 32)),
        ids=SequentialIds(),
        guard=UrlGuard(lookup=public),
    )
    models: Models = build_models(
        config=tmp_path / "none.toml",
        environ={"OPENAI_API_KEY": "k", "PROCTOR_MODEL": "house"},
        telemetry=no_telemetry(),
        clock=FakeClock(),
        ownership=ownership if keeps else None,
    )
    servicer = ModelServicer(models.catalogue, models.own)
    service = Service(
        name="models",
        register=lambda server: model_service_pb2_grpc.add_ModelServiceServicer_to_server(servicer, server),
        grpc_services=("proctor.orchestrator.v1.ModelService",),
        start=nothing,
        drain=nothing,
        close=models.close,
    )
    try:
        async with serve(service) as running:
            yield running
    finally:
        await database.close()


def stub(running: Served) -> model_service_pb2_grpc.ModelServiceAsyncStub:
    made: model_service_pb2_grpc.ModelServiceAsyncStub = model_service_pb2_grpc.ModelServiceStub(running.channel)
    return made


def as_(running: Served, who: Principal) -> tuple[tuple[str, str], ...]:
    return running.platform.signer.metadata(who)


def definition(**fields: object) -> pb.ModelDefinition:
    made = pb.ModelDefinition(name="mine", base_url="https://models.example.org/v1", api_key="sk-ann")
    for name, value in fields.items():
        setattr(made, name, value)
    return made


async def test_a_model_is_created_changed_listed_and_deleted(tmp_path: Path) -> None:
    async with served(tmp_path) as running:
        calls, ann = stub(running), as_(running, ANN)
        created = (await calls.CreateModel(pb.CreateModelRequest(definition=definition()), metadata=ann)).model
        assert created.owner == "ann"
        assert (created.own, created.name, created.base_url) == (True, "mine", "https://models.example.org/v1")
        assert created.api == "chat"
        assert created.has_key
        assert "sk-ann" not in str(created)
        assert list(created.capabilities) == ["json_mode", "json_schema", "tools"]
        changed = pb.UpdateModelRequest(model_id=created.model_id, definition=definition(window=9000))
        assert (await calls.UpdateModel(changed, metadata=ann)).model.window == 9000
        first = await calls.ListModels(pb.ListModelsRequest(page_size=2), metadata=ann)
        rest = await calls.ListModels(pb.ListModelsRequest(page_token=first.next_page_token), metadata=ann)
        assert [m.model_id for m in (*first.models, *rest.models)] == ["house", "reader", created.model_id]
        await calls.DeleteModel(pb.DeleteModelRequest(model_id=created.model_id), metadata=ann)
        assert len((await calls.ListModels(pb.ListModelsRequest(), metadata=ann)).models) == 2


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        (definition(base_url="http://inside.example.org/v1"), "URL_FORBIDDEN"),
        (definition(name=""), "INVALID_REQUEST"),
        (definition(api="soap"), "INVALID_REQUEST"),
        (definition(name="house"), "NAME_TAKEN"),
    ],
)
async def test_a_wrong_definition_is_refused_with_its_reason(
    tmp_path: Path, made: pb.ModelDefinition, reason: str
) -> None:
    async with served(tmp_path) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await stub(running).CreateModel(pb.CreateModelRequest(definition=made), metadata=as_(running, ANN))
    assert from_rpc_error(caught.value).reason == reason


async def test_another_tenant_can_neither_see_nor_delete_it(tmp_path: Path) -> None:
    async with served(tmp_path) as running:
        calls = stub(running)
        request = pb.CreateModelRequest(definition=definition())
        created = (await calls.CreateModel(request, metadata=as_(running, ANN))).model
        listed = await calls.ListModels(pb.ListModelsRequest(), metadata=as_(running, EVE))
        assert created.model_id not in [model.model_id for model in listed.models]
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await calls.DeleteModel(pb.DeleteModelRequest(model_id=created.model_id), metadata=as_(running, EVE))
    assert from_rpc_error(caught.value).reason == "MODEL_NOT_FOUND"


async def test_without_a_store_users_keep_none(tmp_path: Path) -> None:
    async with served(tmp_path, keeps=False) as running:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            request = pb.CreateModelRequest(definition=definition())
            await stub(running).CreateModel(request, metadata=as_(running, ANN))
    assert from_rpc_error(caught.value).reason == "NOT_CONFIGURED"

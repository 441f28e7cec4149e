"""Users' models in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import JSON, Column, Index, LargeBinary, String, Table, delete, insert, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from services.orchestrator.adapters.sql.dialect import Instant
from services.orchestrator.adapters.sql.tables import metadata
from services.orchestrator.adapters.sql.transactions import looking, writing
from services.orchestrator.models.model_settings import Api
from services.orchestrator.models.own.ports import Definition, NameTaken, StoredModel

own_models = Table(
    "own_models",
    metadata,
    Column("model_id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("user_id", String(256), nullable=False),
    Column("name", String(256), nullable=False),
    # What the user said of it, without the key.
    Column("definition", JSON, nullable=False),
    Column("sealed_key", LargeBinary, nullable=False),
    Column("created_at", Instant, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index("own_models_name", "tenant", "user_id", "name", unique=True),
)


class SqlOwnModels:
    """Keeps users' models in one table."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def add(self, model: StoredModel) -> None:
        """Keep a new model. Raises NameTaken when the user has one of that name."""
        try:
            async with writing(self._engine) as connection:
                await connection.execute(insert(own_models).values(**_row(model)))
        except IntegrityError as error:
            raise NameTaken(model.definition.name) from error

    async def replace(self, model: StoredModel) -> None:
        """Put `model` in the place of the one with its id. Raises NameTaken."""
        try:
            async with writing(self._engine) as connection:
                statement = update(own_models).where(own_models.c.model_id == model.model_id)
                await connection.execute(statement.values(**_row(model)))
        except IntegrityError as error:
            raise NameTaken(model.definition.name) from error

    async def remove(self, tenant: str, user: str, model_id: str) -> bool:
        """Forget a model of this user; tell whether there was one."""
        whose = (own_models.c.tenant == tenant) & (own_models.c.user_id == user)
        async with writing(self._engine) as connection:
            result = await connection.execute(delete(own_models).where(whose, own_models.c.model_id == model_id))
            return result.rowcount > 0

    async def all(self) -> Sequence[StoredModel]:
        """Return every user's models, oldest first."""
        async with looking(self._engine) as connection:
            rows = await connection.execute(select(own_models).order_by(own_models.c.created_at, own_models.c.model_id))
            return [_model(row) for row in rows]


def _row(model: StoredModel) -> dict[str, Any]:
    definition = model.definition
    return {
        "model_id": model.model_id,
        "tenant": model.tenant,
        "user_id": model.user,
        "name": definition.name,
        "definition": {
            "base_url": definition.base_url,
            "upstream_name": definition.upstream_name,
            "api": definition.api.value,
            "window": definition.window,
            "output_limit": definition.output_limit,
            "capabilities": sorted(definition.capabilities),
            "description": definition.description,
        },
        "sealed_key": model.sealed_key,
        "created_at": model.created_at,
        "updated_at": model.updated_at,
    }


def _model(row: Any) -> StoredModel:
    said = row.definition
    return StoredModel(
        model_id=row.model_id,
        tenant=row.tenant,
        user=row.user_id,
        definition=Definition(
            name=row.name,
            base_url=said["base_url"],
            upstream_name=said["upstream_name"],
            api=Api(said["api"]),
            window=said["window"],
            output_limit=said["output_limit"],
            capabilities=frozenset(said["capabilities"]),
            description=said["description"],
        ),
        sealed_key=row.sealed_key,
        created_at=row.created_at,
        updated_at=row.updated_at,
    )

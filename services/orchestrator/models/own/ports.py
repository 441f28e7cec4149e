"""A user's model as data, and where it is kept."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol

import grpc

from services.chassis.errors import ServiceError
from services.chassis.settings import Secret
from services.orchestrator.models.model_settings import DEFAULT_CAPABILITIES, Api


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """What a user says of a model. An empty `api_key` keeps the one that is stored."""

    name: str
    base_url: str
    upstream_name: str = ""
    api: Api = Api.CHAT
    api_key: Secret = field(default_factory=Secret)
    window: int = 0
    output_limit: int = 0
    capabilities: frozenset[str] = DEFAULT_CAPABILITIES
    description: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredModel:
    """A row: the definition without its key, and the key sealed. `name` is unique per tenant and user."""

    model_id: str
    tenant: str
    user: str
    definition: Definition
    sealed_key: bytes
    created_at: datetime
    updated_at: datetime

    @property
    def context(self) -> str:
        """What the key is sealed for: this row and this endpoint, so that no other URL ever gets it."""
        return f"{self.tenant}\x00{self.user}\x00{self.model_id}\x00{self.definition.base_url}"


class OwnModelStore(Protocol):
    """Keeps users' models."""

    async def add(self, model: StoredModel) -> None:
        """Keep a new model. Raises NameTaken when the user has one of that name."""
        ...

    async def replace(self, model: StoredModel) -> None:
        """Put `model` in the place of the one with its id. Raises NameTaken."""
        ...

    async def remove(self, tenant: str, user: str, model_id: str) -> bool:
        """Forget a model of this user; tell whether there was one."""
        ...

    async def all(self) -> Sequence[StoredModel]:
        """Return every user's models, oldest first."""
        ...


class NameTaken(ServiceError):
    """The name stands for another model."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "NAME_TAKEN"

    def __init__(self, name: str) -> None:
        super().__init__(f"a model called '{name}' exists already; choose another name", metadata={"name": name})

"""Where agents and prompts are kept, and the failures that name them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

import grpc

from services.chassis.errors import ServiceError
from services.orchestrator.domain.agent import Agent, Prompt

# An agent or a prompt: both have a name, an owner, a version, and are shared or not.
T = TypeVar("T", Agent, Prompt)


class AgentNotFound(ServiceError):
    """The named agent does not exist, or is another's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "AGENT_NOT_FOUND"


class PromptNotFound(ServiceError):
    """The named prompt does not exist, or is another's."""

    code = grpc.StatusCode.NOT_FOUND
    reason = "PROMPT_NOT_FOUND"


class NameTaken(ServiceError):
    """The operator, or somebody of the tenant, has one of that name."""

    code = grpc.StatusCode.ALREADY_EXISTS
    reason = "NAME_TAKEN"

    def __init__(self, word: str, name: str) -> None:
        super().__init__(f"there is {word} called '{name}' already; choose another name", metadata={"name": name})


class ReadOnly(ServiceError):
    """It comes from the operator's file."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "READ_ONLY"

    def __init__(self, name: str) -> None:
        super().__init__(
            f"'{name}' is the operator's; change it in proctor.toml, or keep one under another name",
            metadata={"name": name},
        )


class Conflict(ServiceError):
    """Somebody changed it meanwhile."""

    code = grpc.StatusCode.ABORTED
    reason = "CONFLICT"

    def __init__(self, name: str, read: int, newest: int) -> None:
        super().__init__(
            f"'{name}' has version {newest} now and version {read} was changed; read it again",
            metadata={"name": name, "version": str(newest)},
        )


class InUse(ServiceError):
    """Others refer to it."""

    code = grpc.StatusCode.FAILED_PRECONDITION
    reason = "IN_USE"


class DefinitionStore(Protocol[T]):
    """Keeps definitions of one kind with all their versions. A name is unique in its tenant."""

    async def add(self, tenant: str, value: T) -> None:
        """Keep a new one. Raises NameTaken."""
        ...

    async def replace(self, tenant: str, value: T, expected: int) -> None:
        """Add `value` as the newest version of the one with its id.

        Raises NameTaken, and Conflict when the newest version is not `expected` or there is none any more.
        """
        ...

    async def remove(self, tenant: str, definition_id: str) -> bool:
        """Forget one with all its versions; tell whether there was one."""
        ...

    async def get(self, tenant: str, id_or_name: str) -> T | None:
        """Return the newest version of one."""
        ...

    async def version(self, tenant: str, definition_id: str, version: int) -> T | None:
        """Return one version of one."""
        ...

    async def list(self, tenant: str) -> Sequence[T]:
        """Return the newest versions of all, by name."""
        ...

    async def versions(self, tenant: str, definition_id: str, *, limit: int, before: int) -> Sequence[T]:
        """Return versions of one that are older than `before` (0: all), newest first."""
        ...

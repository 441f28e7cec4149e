"""Agents and prompts in the database: the newest version of each, and every version beside it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic

from sqlalchemy import (
    Boolean,
    Column,
    Index,
    Integer,
    LargeBinary,
    String,
    Table,
    bindparam,
    delete,
    insert,
    select,
    update,
)
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncEngine

from proctor.agent.v1 import agent_pb2
from services.orchestrator.adapters.sql.dialect import Instant
from services.orchestrator.adapters.sql.tables import metadata
from services.orchestrator.adapters.sql.transactions import looking, writing
from services.orchestrator.agents.ports import Conflict, NameTaken, T
from services.orchestrator.codec_reflect import from_pb, to_pb
from services.orchestrator.domain.agent import Agent, Prompt

definitions = Table(
    "definitions",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("definition_id", String(64), primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("name", String(128), nullable=False),
    Column("owner", String(256), nullable=False),
    Column("shared", Boolean, nullable=False),
    Column("version", Integer, nullable=False),
    # The protobuf message of this version.
    Column("content", LargeBinary, nullable=False),
    Column("updated_at", Instant, nullable=False),
    Index("definitions_name", "tenant", "kind", "name", unique=True),
)

definition_versions = Table(
    "definition_versions",
    metadata,
    Column("kind", String(16), primary_key=True),
    Column("definition_id", String(64), primary_key=True),
    Column("version", Integer, primary_key=True),
    Column("tenant", String(128), nullable=False),
    Column("content", LargeBinary, nullable=False),
    Column("updated_at", Instant, nullable=False),
)

_NEWEST = select(definitions.c.content).where(
    definitions.c.kind == bindparam("kind"), definitions.c.tenant == bindparam("tenant")
)
_NEWEST_OF_ONE = _NEWEST.where(
    (definitions.c.definition_id == bindparam("id_or_name")) | (definitions.c.name == bindparam("id_or_name"))
)
_NEWEST_OF_ALL = _NEWEST.order_by(definitions.c.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Form(Generic[T]):
    """How definitions of one kind are written and read. `word` is for people."""

    kind: str
    word: str
    identify: Callable[[T], str]
    write: Callable[[T], bytes]
    read: Callable[[bytes], T]


AGENTS: Form[Agent] = Form(
    kind="agent",
    word="an agent",
    identify=lambda agent: agent.agent_id,
    write=lambda agent: to_pb(agent, agent_pb2.Agent).SerializeToString(deterministic=True),
    read=lambda content: from_pb(agent_pb2.Agent.FromString(content), Agent),
)
PROMPTS: Form[Prompt] = Form(
    kind="prompt",
    word="a prompt",
    identify=lambda prompt: prompt.prompt_id,
    write=lambda prompt: to_pb(prompt, agent_pb2.Prompt).SerializeToString(deterministic=True),
    read=lambda content: from_pb(agent_pb2.Prompt.FromString(content), Prompt),
)


class SqlDefinitions(Generic[T]):
    """Keeps definitions of one kind."""

    def __init__(self, engine: AsyncEngine, form: Form[T]) -> None:
        self._engine = engine
        self._form: Form[T] = form

    async def add(self, tenant: str, value: T) -> None:
        """Keep a new one. Raises NameTaken."""
        try:
            async with writing(self._engine) as connection:
                row = self._row(tenant, value)
                await connection.execute(insert(definitions).values(**row))
                await connection.execute(insert(definition_versions).values(**_version_of(row)))
        except IntegrityError as error:
            raise NameTaken(self._form.word, value.name) from error

    async def replace(self, tenant: str, value: T, expected: int) -> None:
        """Add `value` as the newest version. Raises NameTaken and Conflict."""
        row = self._row(tenant, value)
        here = self._here(tenant) & (definitions.c.definition_id == row["definition_id"])
        try:
            async with writing(self._engine) as connection:
                result = await connection.execute(
                    update(definitions).where(here, definitions.c.version == expected).values(**row)
                )
                if result.rowcount == 0:
                    newest = await connection.scalar(select(definitions.c.version).where(here))
                    raise Conflict(value.name, expected, newest or 0)
                await connection.execute(insert(definition_versions).values(**_version_of(row)))
        except IntegrityError as error:
            raise NameTaken(self._form.word, value.name) from error

    async def remove(self, tenant: str, definition_id: str) -> bool:
        """Forget one with all its versions; tell whether there was one."""
        async with writing(self._engine) as connection:
            result = await connection.execute(
                delete(definitions).where(self._here(tenant), definitions.c.definition_id == definition_id)
            )
            await connection.execute(delete(definition_versions).where(self._of(tenant, definition_id)))
            return result.rowcount > 0

    async def get(self, tenant: str, id_or_name: str) -> T | None:
        """Return the newest version of one."""
        wanted = {"kind": self._form.kind, "tenant": tenant, "id_or_name": id_or_name}
        async with looking(self._engine) as connection:
            content = await connection.scalar(_NEWEST_OF_ONE, wanted)
            return None if content is None else self._form.read(content)

    async def version(self, tenant: str, definition_id: str, version: int) -> T | None:
        """Return one version of one."""
        statement = select(definition_versions.c.content).where(
            self._of(tenant, definition_id), definition_versions.c.version == version
        )
        async with looking(self._engine) as connection:
            content = await connection.scalar(statement)
            return None if content is None else self._form.read(content)

    async def list(self, tenant: str) -> Sequence[T]:
        """Return the newest versions of all, by name."""
        here = {"kind": self._form.kind, "tenant": tenant}
        async with looking(self._engine) as connection:
            return [self._form.read(content) for content in await connection.scalars(_NEWEST_OF_ALL, here)]

    async def versions(self, tenant: str, definition_id: str, *, limit: int, before: int) -> Sequence[T]:
        """Return versions of one that are older than `before` (0: all), newest first."""
        statement = select(definition_versions.c.content).where(self._of(tenant, definition_id))
        if before:
            statement = statement.where(definition_versions.c.version < before)
        statement = statement.order_by(definition_versions.c.version.desc()).limit(limit)
        async with looking(self._engine) as connection:
            return [self._form.read(content) for content in await connection.scalars(statement)]

    def _here(self, tenant: str) -> Any:
        return (definitions.c.kind == self._form.kind) & (definitions.c.tenant == tenant)

    def _of(self, tenant: str, definition_id: str) -> Any:
        columns = definition_versions.c
        return (columns.kind == self._form.kind) & (columns.tenant == tenant) & (columns.definition_id == definition_id)

    def _row(self, tenant: str, value: T) -> dict[str, Any]:
        return {
            "kind": self._form.kind,
            "definition_id": self._form.identify(value),
            "tenant": tenant,
            "name": value.name,
            "owner": value.owner,
            "shared": value.shared,
            "version": value.version,
            "content": self._form.write(value),
            "updated_at": value.updated_at,
        }


def _version_of(row: dict[str, Any]) -> dict[str, Any]:
    names = ("kind", "definition_id", "version", "tenant", "content", "updated_at")
    return {name: row[name] for name in names}

"""Use cases of kept agents and prompts: list, look up, create, change, delete; the operator's are read-only."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Generic, Protocol, TypeVar

from services.chassis.clock import Clock, Ids
from services.chassis.errors import FieldViolation, InvalidRequest, Overloaded, PermissionDenied, ServiceError
from services.chassis.identity import Principal
from services.orchestrator.agents.ports import AgentNotFound, DefinitionStore, NameTaken, PromptNotFound, ReadOnly, T
from services.orchestrator.domain.agent import Agent, Prompt

WRITE = "agents:write"
ADMIN = "agents:admin"
# A tenant's agents are listed in memory.
MAX_PER_TENANT = 500
T_co = TypeVar("T_co", Agent, Prompt, covariant=True)
T_contra = TypeVar("T_contra", Agent, Prompt, contravariant=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind(Generic[T]):
    """What differs between agents and prompts: how they are called, where their id stands, how a missing one fails."""

    word: str
    article: str
    id_field: str
    not_found: type[ServiceError]

    def name_taken(self, name: str) -> NameTaken:
        """Return the refusal of a name that another one has."""
        return NameTaken(f"{self.article} {self.word}", name)

    def id_of(self, value: T) -> str:
        """Return the id."""
        return str(getattr(value, self.id_field))

    def with_id(self, value: T, definition_id: str, **changes: Any) -> T:
        """Return `value` under another id, with other fields changed too."""
        fields: dict[str, Any] = {self.id_field: definition_id, **changes}
        return replace(value, **fields)


AGENT: Kind[Agent] = Kind(word="agent", article="an", id_field="agent_id", not_found=AgentNotFound)
PROMPT: Kind[Prompt] = Kind(word="prompt", article="a", id_field="prompt_id", not_found=PromptNotFound)


class Operators(Protocol[T_co]):
    """The operator's definitions of one kind."""

    def find(self, id_or_name: str) -> T_co | None: ...

    def list(self) -> tuple[T_co, ...]: ...


class Checker(Protocol[T_contra]):
    """Says what is wrong with a definition before it is kept."""

    async def problems(
        self, principal: Principal, value: T_contra, before: T_contra | None
    ) -> Sequence[FieldViolation]:
        """Return every field that cannot serve; `before` is what stands in its place now."""
        ...

    async def before_delete(self, principal: Principal, value: T_contra) -> None:
        """Raise InUse when others refer to it."""
        ...


class Keeper(Generic[T]):
    """Definitions of one kind, the operator's and the kept ones. Names are unique over both within a tenant."""

    def __init__(
        self,
        kind: Kind[T],
        *,
        operators: Operators[T],
        store: DefinitionStore[T],
        checker: Checker[T],
        clock: Clock,
        ids: Ids,
    ) -> None:
        self._kind: Kind[T] = kind
        self._operators: Operators[T] = operators
        self._store: DefinitionStore[T] = store
        self._checker: Checker[T] = checker
        self._clock = clock
        self._ids = ids

    async def list(self, principal: Principal) -> tuple[T, ...]:
        """Return the operator's, then the kept ones that `principal` may use, by name."""
        kept: Sequence[T] = await self._store.list(principal.tenant)
        mine: tuple[T, ...] = tuple(value for value in kept if may_use(principal, value))
        return self._operators.list() + mine

    async def get(self, principal: Principal, id_or_name: str, version: int = 0) -> T:
        """Return one, its newest version when `version` is 0, or raise AgentNotFound or PromptNotFound."""
        found = self._operators.find(id_or_name)
        if found is None:
            found = await self._kept(principal, id_or_name)
        if version in (0, found.version):
            return found
        older = None
        if not found.read_only:
            older = await self._store.version(principal.tenant, self._kind.id_of(found), version)
        if older is None:
            text = f"{self._kind.word} '{found.name}' has no version {version}; its newest is {found.version}"
            raise self._kind.not_found(text, metadata={self._kind.id_field: id_or_name})
        return older

    async def versions(self, principal: Principal, id_or_name: str, *, limit: int, before: int) -> Sequence[T]:
        """Return versions older than `before` (0: all), newest first."""
        found = await self.get(principal, id_or_name)
        if found.read_only:
            return () if before else (found,)
        return await self._store.versions(principal.tenant, self._kind.id_of(found), limit=limit, before=before)

    async def create(self, principal: Principal, value: T, *, validate_only: bool = False) -> T:
        """Keep a new one of the principal's. Raises InvalidRequest with every wrong field, NameTaken, Overloaded."""
        require_writer(principal)
        value = self._kind.with_id(
            value,
            "",
            name=value.name.strip(),
            owner=principal.user,
            version=1,
            read_only=False,
            updated_at=self._clock.now(),
        )
        await self._check(principal, value, None)
        if len(await self._store.list(principal.tenant)) >= MAX_PER_TENANT:
            raise Overloaded(f"a tenant may keep {MAX_PER_TENANT} {self._kind.word}s; delete one first")
        if validate_only:
            return value
        value = self._kind.with_id(value, f"{self._kind.word}-{self._ids.new()}")
        await self._store.add(principal.tenant, value)
        return value

    async def update(self, principal: Principal, id_or_name: str, value: T, *, validate_only: bool = False) -> T:
        """Make `value` the newest version; its own version is the one that was read (0: whatever is newest).

        Raises InvalidRequest, NameTaken, Conflict, ReadOnly, PermissionDenied. What changes nothing makes no version.
        """
        old = await self._to_change(principal, id_or_name)
        read = value.version or old.version
        value = self._kind.with_id(
            value,
            self._kind.id_of(old),
            name=value.name.strip() or old.name,
            owner=old.owner,
            version=read + 1,
            read_only=False,
            updated_at=self._clock.now(),
        )
        await self._check(principal, value, old)
        if validate_only:
            return value
        if replace(value, version=old.version, updated_at=old.updated_at) == old and read == old.version:
            return old
        await self._store.replace(principal.tenant, value, read)
        return value

    async def delete(self, principal: Principal, id_or_name: str) -> None:
        """Forget one with all its versions. Raises ReadOnly, InUse, PermissionDenied."""
        old = await self._to_change(principal, id_or_name)
        await self._checker.before_delete(principal, old)
        if not await self._store.remove(principal.tenant, self._kind.id_of(old)):
            raise self._missing(principal, id_or_name, ())

    async def _kept(self, principal: Principal, id_or_name: str) -> T:
        found = await self._store.get(principal.tenant, id_or_name)
        if found is None or not may_use(principal, found):
            raise self._missing(principal, id_or_name, await self.list(principal))
        return found

    async def _to_change(self, principal: Principal, id_or_name: str) -> T:
        require_writer(principal)
        if self._operators.find(id_or_name) is not None:
            raise ReadOnly(id_or_name)
        found = await self._kept(principal, id_or_name)
        if found.owner != principal.user and not is_admin(principal):
            raise PermissionDenied(
                f"'{found.name}' is {found.owner}'s; ask them, or use a key with the scope '{ADMIN}'",
                metadata={"scope": ADMIN},
            )
        return found

    async def _check(self, principal: Principal, value: T, before: T | None) -> None:
        if value.name and self._operators.find(value.name) is not None:
            raise self._kind.name_taken(value.name)
        found = await self._store.get(principal.tenant, value.name)
        if found is not None and (before is None or self._kind.id_of(found) != self._kind.id_of(before)):
            raise self._kind.name_taken(value.name)
        problems = tuple(await self._checker.problems(principal, value, before))
        if problems:
            told = "; ".join(f"{problem.field}: {problem.description}" for problem in problems)
            violations = tuple(replace(p, field=f"{self._kind.word}.{p.field}") for p in problems)
            raise InvalidRequest(f"the {self._kind.word} is not kept: {told}", violations=violations)

    def _missing(self, principal: Principal, id_or_name: str, known: Sequence[T]) -> ServiceError:
        names = ", ".join(value.name for value in known) or "none"
        text = f"{self._kind.word} '{id_or_name}' does not exist; there are: {names}"
        return self._kind.not_found(text, metadata={self._kind.id_field: id_or_name})


def may_use(principal: Principal, value: Agent | Prompt) -> bool:
    """Whether a kept definition is there for `principal`."""
    return value.shared or value.owner == principal.user or is_admin(principal)


def is_admin(principal: Principal) -> bool:
    """Whether `principal` may see and change what others keep."""
    return bool(principal.scopes & {ADMIN, "*"})


def require_writer(principal: Principal) -> None:
    """Raise PermissionDenied unless `principal` may keep agents and prompts."""
    if not is_admin(principal):
        principal.require(WRITE)

"""The model layer put together: the one place that knows which wrapper stands around which.

Traced → Holding → Fallback → per model: what `stacks` says
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from services.chassis.clock import Clock, Ids
from services.chassis.telemetry import Telemetry
from services.orchestrator.models.catalogue import FileCatalogue
from services.orchestrator.models.fallback import Candidate, Fallback
from services.orchestrator.models.hold import Holding
from services.orchestrator.models.limits import Limits
from services.orchestrator.models.media import InlineMedia, MediaReader
from services.orchestrator.models.own.addresses import UrlGuard
from services.orchestrator.models.own.catalogue import JoinedCatalogue
from services.orchestrator.models.own.models import OwnModels
from services.orchestrator.models.own.ports import OwnModelStore
from services.orchestrator.models.own.vault import Vault
from services.orchestrator.models.ports import ModelRequest
from services.orchestrator.models.retry import RetryPolicy
from services.orchestrator.models.stacks import Stacks, load_client
from services.orchestrator.models.traced import Traced
from services.orchestrator.models.transport import ModelTransport

PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "all_proxy"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """What users' own models need: where they are kept, what seals their keys, where their URLs may lead."""

    store: OwnModelStore
    vault: Vault
    ids: Ids
    guard: UrlGuard = field(default_factory=UrlGuard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The model layer: `chat` answers, `catalogue` tells what there is, `own` keeps users' models.

    `start` and `close` frame its life.
    """

    chat: Traced
    catalogue: JoinedCatalogue
    own: OwnModels | None
    operators: FileCatalogue
    stacks: Stacks
    tasks: list[asyncio.Task[None]] = field(default_factory=list)

    async def start(self) -> None:
        """Read users' models and begin to watch for changes."""
        self.tasks.append(asyncio.create_task(self.operators.watch(), name="models file"))
        if self.own is not None:
            await self.own.refresh()
            self.tasks.append(asyncio.create_task(self.own.watch(), name="users' models"))

    def load(self) -> None:
        """Load what the first call would have to wait for; takes part of a second."""
        if self.operators.has_endpoints:
            load_client()

    async def close(self) -> None:
        """Stop watching and close every connection."""
        for task in self.tasks:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
        await self.stacks.close()


def build_models(
    *,
    config: Path,
    environ: Mapping[str, str],
    telemetry: Telemetry,
    clock: Clock,
    limits: Limits | None = None,
    retry: RetryPolicy | None = None,
    media: MediaReader | None = None,
    ownership: Ownership | None = None,
) -> Models:
    """Return the models of proctor.toml at `config`, of the environment, and of users. Raises ModelsInvalid."""
    operators = FileCatalogue(config, environ)
    guard = ownership.guard if ownership else UrlGuard()
    own = _own(ownership, operators, clock)
    catalogue = JoinedCatalogue(operators, own)
    stacks = Stacks(
        clock=clock,
        limits=limits or Limits(),
        retry=retry or RetryPolicy(),
        media=media or InlineMedia(),
        transport=ModelTransport(environment_proxies=any(name.lower() in PROXY_VARIABLES for name in environ)),
        guarded=ModelTransport(socket_factory=guard.open_socket),
    )

    async def candidates(request: ModelRequest) -> Sequence[Candidate]:
        named = request.model or catalogue.default(request.purpose).model_id
        settings = catalogue.require(named, request.tenant)
        spares = (catalogue.settings(each, request.tenant) for each in settings.fallbacks)
        chain = [settings, *(spare for spare in spares if spare is not None)]
        return [Candidate(info=each.info, model=stacks.get(each)) for each in chain]

    chat = Traced(Holding(Fallback(candidates)), telemetry, clock, catalogue.settings)
    return Models(chat=chat, catalogue=catalogue, own=own, operators=operators, stacks=stacks)


def _own(ownership: Ownership | None, operators: FileCatalogue, clock: Clock) -> OwnModels | None:
    if ownership is None:
        return None
    return OwnModels(ownership.store, ownership.vault, ownership.guard, operators, clock, ownership.ids)

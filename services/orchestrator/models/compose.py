"""The model layer put together: the one place that knows which wrapper stands around which.

Traced → Holding → Fallback → per model: Admitted → Structured → MediaAware → Retrying → PromptedTools → adapter
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import httpx2
import openai

from services.chassis.clock import Clock
from services.chassis.telemetry import Telemetry
from services.orchestrator.models.admission import Admitted
from services.orchestrator.models.catalogue import FileCatalogue
from services.orchestrator.models.chat_dialect import ChatDialect
from services.orchestrator.models.errors import ModelNotFound
from services.orchestrator.models.fallback import Candidate, Fallback
from services.orchestrator.models.hold import Holding
from services.orchestrator.models.layers import TimedModel
from services.orchestrator.models.limits import Limits
from services.orchestrator.models.media import InlineMedia, MediaAware, MediaReader
from services.orchestrator.models.model_settings import TOOLS, Api, ModelSettings
from services.orchestrator.models.openai_model import OpenAIModel
from services.orchestrator.models.ports import ModelRequest
from services.orchestrator.models.prompted import PromptedTools
from services.orchestrator.models.reader import Reader
from services.orchestrator.models.responses_dialect import ResponsesDialect
from services.orchestrator.models.retry import Retrying, RetryPolicy
from services.orchestrator.models.structured import Structured
from services.orchestrator.models.traced import Traced
from services.orchestrator.models.transport import ModelTransport

PROXY_VARIABLES = frozenset({"http_proxy", "https_proxy", "all_proxy"})


class Stacks:
    """Makes the layers of each model, once for each state of its settings."""

    def __init__(
        self, clock: Clock, limits: Limits, retry: RetryPolicy, media: MediaReader, transport: ModelTransport
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._retry = retry
        self._media = media
        self._made: dict[str, tuple[ModelSettings, TimedModel]] = {}
        self._http = httpx2.AsyncClient(transport=transport, timeout=None)

    def get(self, settings: ModelSettings) -> TimedModel:
        """Return the model of `settings`, wrapped."""
        made = self._made.get(settings.model_id)
        if made is None or made[0] != settings:
            made = (settings, self._wrapped(settings))
            self._made[settings.model_id] = made
        return made[1]

    async def close(self) -> None:
        """Close every connection."""
        await self._http.aclose()

    def _wrapped(self, settings: ModelSettings) -> TimedModel:
        if settings.api is Api.READER:
            return Reader()
        model: TimedModel = self._adapter(settings)
        if TOOLS not in settings.capabilities:
            model = PromptedTools(model)
        model = Retrying(model, self._retry, self._limits)
        model = MediaAware(model, settings.info, self._media)
        model = Structured(model, settings.info)
        if settings.max_concurrency:
            model = Admitted(model, settings.max_concurrency, self._clock)
        return model

    def _adapter(self, settings: ModelSettings) -> OpenAIModel:
        client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            api_key=str(settings.api_key) or "none",
            max_retries=0,
            http_client=self._http,
        )
        dialect = ResponsesDialect() if settings.api is Api.RESPONSES else ChatDialect()
        return OpenAIModel(settings, dialect, client, self._limits, self._clock)


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """The model layer: `chat` answers, `catalogue` tells what there is. `start` and `close` frame its life."""

    chat: Traced
    catalogue: FileCatalogue
    stacks: Stacks
    tasks: list[asyncio.Task[None]]

    async def start(self) -> None:
        """Begin to watch the catalogue's file."""
        self.tasks.append(asyncio.create_task(self.catalogue.watch()))

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
) -> Models:
    """Return the models of proctor.toml at `config` and of the environment. Raises ModelsInvalid."""
    catalogue = FileCatalogue(config, environ)
    transport = ModelTransport(environment_proxies=any(name.lower() in PROXY_VARIABLES for name in environ))
    stacks = Stacks(clock, limits or Limits(), retry or RetryPolicy(), media or InlineMedia(), transport)

    async def candidates(request: ModelRequest) -> Sequence[Candidate]:
        named = request.model or catalogue.default(request.purpose).model_id
        settings = catalogue.settings(named)
        if settings is None:
            raise ModelNotFound(named)
        chain = [settings, *filter(None, map(catalogue.settings, settings.fallbacks))]
        return [Candidate(info=each.info, model=stacks.get(each)) for each in chain]

    chat = Traced(Holding(Fallback(candidates)), telemetry, clock, catalogue.settings)
    return Models(chat=chat, catalogue=catalogue, stacks=stacks, tasks=[])

"""The layers around each model, made once for each state of its settings.

per model: Admitted → Structured → MediaAware → Retrying → PromptedTools → adapter
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

import httpx2

from services.chassis.clock import Clock
from services.orchestrator.models.admission import Admitted
from services.orchestrator.models.coalescing import Coalescer
from services.orchestrator.models.layers import TimedModel
from services.orchestrator.models.limits import Limits
from services.orchestrator.models.media import MediaAware, MediaReader
from services.orchestrator.models.model_settings import TOOLS, Api, ModelSettings
from services.orchestrator.models.prompted import PromptedTools
from services.orchestrator.models.reader import Reader
from services.orchestrator.models.retry import Retrying, RetryPolicy
from services.orchestrator.models.structured import Structured
from services.orchestrator.models.transport import ModelTransport

if TYPE_CHECKING:
    from services.orchestrator.models.openai_model import OpenAIModel

OPERATOR = "operator"
MAX_STACKS = 1000


class Stacks:
    """Makes models ready to call. Those of users go through a transport that refuses private addresses."""

    def __init__(
        self,
        *,
        clock: Clock,
        limits: Limits,
        retry: RetryPolicy,
        media: MediaReader,
        transport: ModelTransport,
        guarded: ModelTransport,
    ) -> None:
        self._clock = clock
        self._limits = limits
        self._retry = retry
        self._media = media
        # One for all models: their streams share the loop.
        self._coalescer = Coalescer(clock)
        self._made: dict[str, tuple[ModelSettings, TimedModel]] = {}
        self._operators = transport, httpx2.AsyncClient(transport=transport, timeout=None)
        self._users = guarded, httpx2.AsyncClient(transport=guarded, timeout=None)

    def get(self, settings: ModelSettings) -> TimedModel:
        """Return the model of `settings`, wrapped."""
        made = self._made.get(settings.model_id)
        if made is None or made[0] != settings:
            if len(self._made) >= MAX_STACKS:
                self._made.pop(next(iter(self._made)))
            made = (settings, self._wrapped(settings))
            self._made[settings.model_id] = made
        return made[1]

    async def close(self) -> None:
        """Close every connection."""
        for _, http in (self._operators, self._users):
            await http.aclose()

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
        # Loaded when it is needed: see `load_client`.
        import openai

        from services.orchestrator.models.chat_dialect import ChatDialect
        from services.orchestrator.models.openai_model import OpenAIModel
        from services.orchestrator.models.posting import Poster
        from services.orchestrator.models.responses_dialect import ResponsesDialect

        transport, http = self._operators if settings.owner == OPERATOR else self._users
        client = openai.AsyncOpenAI(
            base_url=settings.base_url,
            # The client insists on a key; servers without keys ignore it.
            api_key=str(settings.api_key) or "none",
            max_retries=0,
            http_client=http,
        )
        dialect = ResponsesDialect() if settings.api is Api.RESPONSES else ChatDialect()
        poster = Poster(client, transport, dialect.path)
        return OpenAIModel(settings, dialect, poster, self._limits, self._clock, self._coalescer)


def load_client() -> None:
    """Load what a model's endpoint is asked with: a second that the first question should not wait for.

    For a thread to do once the service has started: it is half of what the service loads, and the reader needs none.
    """
    for module in ("chat_dialect", "openai_model", "responses_dialect"):
        import_module(f"services.orchestrator.models.{module}")
    import_module("openai.resources.chat.completions")

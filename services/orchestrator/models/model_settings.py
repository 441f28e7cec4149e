"""One model of the catalogue as its operator or owner describes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from enum import Enum
from urllib.parse import urlsplit

from services.chassis.settings import Secret
from services.orchestrator.domain.messages import Sampling, Usage
from services.orchestrator.models.ports import ModelInfo, Purpose

TOOLS = "tools"
VISION = "vision"
JSON_SCHEMA = "json_schema"
JSON_MODE = "json_mode"
REASONING = "reasoning"
CAPABILITIES = frozenset({TOOLS, VISION, JSON_SCHEMA, JSON_MODE, REASONING})
# What a model is taken to do when its description does not say.
DEFAULT_CAPABILITIES = frozenset({TOOLS, JSON_SCHEMA, JSON_MODE})
DEFAULT_WINDOW = 128_000

_PROVIDERS = {
    "api.openai.com": "openai",
    "generativelanguage.googleapis.com": "gcp.gemini",
    "api.deepseek.com": "deepseek",
    "api.mistral.ai": "mistral_ai",
    "api.groq.com": "groq",
    "api.x.ai": "x_ai",
    "api.anthropic.com": "anthropic",
    "api.perplexity.ai": "perplexity",
}


class Api(Enum):
    """Which interface a model is spoken to through."""

    CHAT = "chat"
    RESPONSES = "responses"
    READER = "reader"


class StructuredParameter(Enum):
    """How a server is told the schema of the answer."""

    RESPONSE_FORMAT = "response_format"
    GUIDED_JSON = "guided_json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Currency units per million tokens, which are also millionths of a unit per token."""

    input: float = 0.0
    cached_input: float | None = None
    output: float = 0.0

    def cost_micros(self, usage: Usage) -> int:
        """Return what `usage` costs, in millionths of a unit."""
        cached = self.input if self.cached_input is None else self.cached_input
        fresh = usage.input_tokens - usage.cached_input_tokens
        return round(fresh * self.input + usage.cached_input_tokens * cached + usage.output_tokens * self.output)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSettings:
    """A model and how to speak to it.

    `store` lets the provider keep responses so that a conversation goes on by id (Responses API). `replay_reasoning`
    names the field in which the provider wants earlier reasoning back, empty when it wants none. `max_concurrency` 0 is
    no limit. `max_tokens_parameter` is `max_tokens` or `max_completion_tokens`.
    """

    model_id: str
    upstream_name: str
    api: Api = Api.CHAT
    base_url: str = ""
    api_key: Secret = field(default_factory=Secret)
    window: int = 0
    output_limit: int = 0
    capabilities: frozenset[str] = DEFAULT_CAPABILITIES
    price: Price = field(default_factory=Price)
    fallbacks: tuple[str, ...] = ()
    roles: frozenset[Purpose] = frozenset()
    sampling: Sampling = field(default_factory=Sampling)
    structured: StructuredParameter = StructuredParameter.RESPONSE_FORMAT
    max_tokens_parameter: str = "max_tokens"
    stream_usage: bool = True
    replay_reasoning: str = ""
    store: bool = False
    max_concurrency: int = 0
    description: str = ""
    owner: str = "operator"

    @property
    def provider(self) -> str:
        """Name of the provider in telemetry: by the host where it is known, else `openai` for its interface."""
        if self.api is Api.READER:
            return "proctor"
        return _PROVIDERS.get(urlsplit(self.base_url).hostname or "", "openai")

    @property
    def info(self) -> ModelInfo:
        """What others may know of the model; the key is no part of it."""
        return ModelInfo(
            model_id=self.model_id,
            upstream_name=self.upstream_name,
            window=self.window,
            output_limit=self.output_limit,
            capabilities=self.capabilities,
            owner=self.owner,
            description=self.description,
            fallbacks=self.fallbacks,
        )

    def priced(self, usage: Usage) -> Usage:
        """Return `usage` with its cost."""
        return replace(usage, cost_micros=self.price.cost_micros(usage))

    def sampled(self, wanted: Sampling) -> Sampling:
        """Return `wanted` with this model's defaults where it leaves the choice, capped by the output limit."""
        own = self.sampling
        most = wanted.max_output_tokens if wanted.max_output_tokens is not None else own.max_output_tokens
        if most is not None and self.output_limit:
            most = min(most, self.output_limit)
        return Sampling(
            temperature=own.temperature if wanted.temperature is None else wanted.temperature,
            top_p=own.top_p if wanted.top_p is None else wanted.top_p,
            max_output_tokens=most,
            stop=wanted.stop or own.stop,
            seed=own.seed if wanted.seed is None else wanted.seed,
            reasoning_effort=wanted.reasoning_effort or own.reasoning_effort,
        )

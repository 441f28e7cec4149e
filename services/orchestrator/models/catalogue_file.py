"""The `[models.NAME]` tables of proctor.toml, and the environment's one model, as settings."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from services.chassis.settings import Secret
from services.orchestrator.domain.messages import Sampling
from services.orchestrator.models.model_settings import (
    CAPABILITIES,
    DEFAULT_CAPABILITIES,
    Api,
    ModelSettings,
    Price,
    StructuredParameter,
)
from services.orchestrator.models.ports import Purpose
from services.orchestrator.models.reader import MODEL_ID as READER

OPENAI_URL = "https://api.openai.com/v1"
DEFAULT_MODEL = "gpt-4o-mini"
READER_SETTINGS = ModelSettings(
    model_id=READER,
    upstream_name=READER,
    api=Api.READER,
    capabilities=frozenset({"tools"}),
    description="No language model: quotes the sentences of your documents that answer, without any key.",
)
E_ = TypeVar("E_", bound=Enum)
T_ = TypeVar("T_")


class ModelsInvalid(ValueError):
    """The models of the file are wrong; `problems` has one sentence for each fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_models(path: Path, environ: Mapping[str, str]) -> tuple[ModelSettings, ...]:
    """Return the operator's models: those of the file, the environment's, and the reader. Raises ModelsInvalid."""
    tables: dict[str, Any] = {}
    if path.is_file():
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8")).get("models", {})
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ModelsInvalid([f"{path.name}: {error}"]) from error
    return parse_models(tables, environ)


def parse_models(tables: Mapping[str, Any], environ: Mapping[str, str]) -> tuple[ModelSettings, ...]:
    """Return the models that `tables` describe, the environment's, and the reader. Raises ModelsInvalid."""
    problems: list[str] = []
    models: list[ModelSettings] = []
    for name, table in tables.items():
        if not isinstance(table, Mapping):
            problems.append(f"models.{name}: expected a table")
            continue
        reader = _Table(name, table, environ, problems)
        model = reader.model()
        problems += [f"models.{name}.{key}: no such key" for key in sorted(set(table) - reader.known)]
        models.append(model)
    own = environment_model(environ)
    if own is not None and own.model_id not in tables:
        models.append(own)
    if READER not in tables:
        models.append(READER_SETTINGS)
    known = {model.model_id for model in models}
    for model in models:
        problems += [
            f"models.{model.model_id}.fallbacks: there is no model '{other}'"
            for other in model.fallbacks
            if other not in known
        ]
    if problems:
        raise ModelsInvalid(problems)
    return tuple(models)


def environment_model(environ: Mapping[str, str]) -> ModelSettings | None:
    """Return the model that OPENAI_BASE_URL, OPENAI_API_KEY and PROCTOR_MODEL describe, None when none of the first two
    is set.
    """
    url, key = environ.get("OPENAI_BASE_URL", ""), environ.get("OPENAI_API_KEY", "")
    if not url and not key:
        return None
    name = environ.get("PROCTOR_MODEL") or DEFAULT_MODEL
    base_url = url or OPENAI_URL
    return ModelSettings(
        model_id=name,
        upstream_name=name,
        base_url=base_url,
        api_key=Secret(key),
        max_tokens_parameter=max_tokens_parameter(base_url),
    )


def max_tokens_parameter(base_url: str) -> str:
    """Return the name of the output limit: OpenAI's newer models refuse the old one, other servers know only that."""
    return "max_completion_tokens" if urlsplit(base_url).hostname == "api.openai.com" else "max_tokens"


class _Table:
    """Reads one `[models.NAME]` table; faults go to `problems`, and the default stands in meanwhile."""

    def __init__(self, name: str, table: Mapping[str, Any], environ: Mapping[str, str], problems: list[str]) -> None:
        self._name = name
        self._table = table
        self._environ = environ
        self._problems = problems
        self.known: set[str] = set()

    def model(self) -> ModelSettings:
        base_url = self._get("base_url", str, OPENAI_URL)
        if urlsplit(base_url).scheme not in ("http", "https"):
            self._problems.append(f"models.{self._name}.base_url: expected an http or https URL, got {base_url!r}")
        return ModelSettings(
            model_id=self._name,
            upstream_name=self._get("upstream_name", str, self._name),
            api=self._enum("api", Api, Api.CHAT),
            base_url=base_url,
            api_key=self._key(),
            window=self._get("window", int, 0),
            output_limit=self._get("output_limit", int, 0),
            capabilities=self._capabilities(),
            price=self._record("price", Price, Price()),
            fallbacks=tuple(self._get("fallbacks", list, [])),
            roles=frozenset(self._purposes()),
            sampling=self._sampling(),
            structured=self._enum("structured", StructuredParameter, StructuredParameter.RESPONSE_FORMAT),
            max_tokens_parameter=self._get("max_tokens_parameter", str, max_tokens_parameter(base_url)),
            stream_usage=self._flag("stream_usage", default=True),
            replay_reasoning=self._get("replay_reasoning", str, ""),
            store=self._flag("store", default=False),
            max_concurrency=self._get("max_concurrency", int, 0),
            description=self._get("description", str, ""),
        )

    def _get(self, key: str, kind: type[Any], default: Any) -> Any:
        self.known.add(key)
        value = self._table.get(key, default)
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self._problems.append(f"models.{self._name}.{key}: expected {kind.__name__}, got {value!r}")
            return default
        return value

    def _flag(self, key: str, *, default: bool) -> bool:
        return bool(self._get(key, bool, default))

    def _key(self) -> Secret:
        variable = self._get("key_env", str, "")
        if variable and variable not in self._environ:
            self._problems.append(f"models.{self._name}.key_env: the environment has no {variable}")
        return Secret(self._environ.get(variable or "OPENAI_API_KEY", ""))

    def _enum(self, key: str, kind: type[E_], default: E_) -> E_:
        text = self._get(key, str, default.value)
        try:
            return kind(text)
        except ValueError:
            choices = ", ".join(str(member.value) for member in kind)
            self._problems.append(f"models.{self._name}.{key}: expected one of {choices}, got {text!r}")
            return default

    def _capabilities(self) -> frozenset[str]:
        wanted = frozenset(map(str, self._get("capabilities", list, sorted(DEFAULT_CAPABILITIES))))
        for unknown in sorted(wanted - CAPABILITIES):
            self._problems.append(
                f"models.{self._name}.capabilities: expected {', '.join(sorted(CAPABILITIES))}, got {unknown!r}"
            )
        return wanted & CAPABILITIES

    def _purposes(self) -> list[Purpose]:
        purposes = []
        for text in self._get("roles", list, []):
            try:
                purposes.append(Purpose(text))
            except ValueError:
                choices = ", ".join(purpose.value for purpose in Purpose)
                self._problems.append(f"models.{self._name}.roles: expected {choices}, got {text!r}")
        return purposes

    def _sampling(self) -> Sampling:
        return self._record("sampling", _sampling_of, Sampling())

    def _record(self, key: str, make: Callable[..., T_], default: T_) -> T_:
        values = self._get(key, dict, {})
        try:
            return make(**values)
        except TypeError as error:
            self._problems.append(f"models.{self._name}.{key}: {error}")
            return default


def _sampling_of(*, stop: list[str] | None = None, **values: Any) -> Sampling:
    return Sampling(stop=tuple(stop or ()), **values)

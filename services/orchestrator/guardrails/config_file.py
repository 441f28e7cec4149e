"""The `[guardrails.NAME]` tables of proctor.toml."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from services.chassis.settings import Secret
from services.orchestrator.guardrails.patterns import Patterns
from services.orchestrator.guardrails.ports import Check, FailMode, Guardrail, Stage
from services.orchestrator.guardrails.recognisers import Kind
from services.orchestrator.guardrails.redaction import Redaction
from services.orchestrator.guardrails.service import Service

E_ = TypeVar("E_", bound=Enum)
_COMMON = frozenset({"kind", "on", "fail", "tenants"})
_OWN = {
    "personal_data": frozenset({"hide"}),
    "patterns": frozenset({"patterns", "message"}),
    "service": frozenset({"url", "key_env", "timeout_seconds"}),
}
DEFAULT_MESSAGE = "This is not answered here."


class GuardrailsInvalid(ValueError):
    """The file's guardrails are wrong; `problems` has one sentence for each fault."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def read_guardrails(path: Path, environ: Mapping[str, str]) -> tuple[Guardrail, ...]:
    """Return the guardrails of `path`, in its order, none when it does not exist. Raises GuardrailsInvalid."""
    if not path.is_file():
        return ()
    try:
        tables = tomllib.loads(path.read_text(encoding="utf-8")).get("guardrails", {})
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise GuardrailsInvalid([f"{path.name}: {error}"]) from error
    problems: list[str] = []
    guardrails = [_Table(name, table, environ, problems).guardrail() for name, table in tables.items()]
    if problems:
        raise GuardrailsInvalid(problems)
    return tuple(each for each in guardrails if each is not None)


class _Table:
    """Reads one table; faults go to `problems`."""

    def __init__(self, name: str, table: Any, environ: Mapping[str, str], problems: list[str]) -> None:
        self._name = name
        self._table: Mapping[str, Any] = table if isinstance(table, Mapping) else {}
        self._environ = environ
        self._problems = problems

    def guardrail(self) -> Guardrail | None:
        kind = self._table.get("kind")
        if kind not in _OWN:
            self._fault("kind", f"expected one of {', '.join(_OWN)}, got {kind!r}")
            return None
        for key in sorted(set(self._table) - _COMMON - _OWN[kind]):
            self._fault(key, f"no such key for kind {kind!r}")
        if "fail" not in self._table:
            self._fault("fail", 'is required: "closed" refuses what could not be judged, "open" lets it pass')
        fail = self._choices("fail", FailMode, [self._table.get("fail", "closed")])
        stages = self._choices("on", Stage, self._list("on", [each.value for each in Stage]))
        check = {"personal_data": self._redaction, "patterns": self._patterns, "service": self._service}[kind]()
        if check is None or not fail:
            return None
        return Guardrail(
            name=self._name,
            check=check,
            stages=frozenset(stages),
            fail=fail[0],
            tenants=frozenset(map(str, self._list("tenants", []))),
            quick=kind != "service",
        )

    def _redaction(self) -> Check:
        return Redaction(self._choices("hide", Kind, self._list("hide", [each.value for each in Kind])))

    def _patterns(self) -> Check | None:
        patterns = []
        for text in self._list("patterns", []):
            try:
                patterns.append(re.compile(str(text)))
            except re.error as error:
                self._fault("patterns", f"{text!r} is no regular expression: {error}")
        if not self._list("patterns", []):
            self._fault("patterns", "needs at least one regular expression")
        return Patterns(patterns, str(self._table.get("message") or DEFAULT_MESSAGE))

    def _service(self) -> Check | None:
        url, variable = str(self._table.get("url", "")), str(self._table.get("key_env", ""))
        if urlsplit(url).scheme not in ("http", "https") or not urlsplit(url).hostname:
            self._fault("url", f"expected an http or https URL, got {url!r}")
        if variable and variable not in self._environ:
            self._fault("key_env", f"the environment has no {variable}")
        seconds = self._table.get("timeout_seconds", 3)
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= 60:
            self._fault("timeout_seconds", f"expected seconds between 0 and 60, got {seconds!r}")
            return None
        return Service(url, Secret(self._environ.get(variable, "")), timedelta(seconds=seconds))

    def _list(self, key: str, default: list[str]) -> list[Any]:
        value = self._table.get(key, default)
        if not isinstance(value, list):
            self._fault(key, f"expected a list, got {value!r}")
            return []
        return value

    def _choices(self, key: str, kind: type[E_], values: list[Any]) -> list[E_]:
        found = []
        for value in values:
            try:
                found.append(kind(value))
            except ValueError:
                self._fault(key, f"expected {', '.join(str(each.value) for each in kind)}, got {value!r}")
        return found

    def _fault(self, key: str, problem: str) -> None:
        self._problems.append(f"guardrails.{self._name}.{key}: {problem}")

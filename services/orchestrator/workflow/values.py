"""Values in workflows: what stands there, a template's text, or (a text that begins with `=`) what CEL gives."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from services.orchestrator.workflow.expressions import evaluate
from services.orchestrator.workflow.templates import is_template, render

_MARK = "="


@dataclass(frozen=True, slots=True, kw_only=True)
class Formula:
    """A text inside a value that is computed: where it stands, and whether it is CEL or a template."""

    where: str
    text: str
    is_cel: bool


def formulas(value: Any, where: str) -> Iterator[Formula]:
    """Yield every computed text inside `value`."""
    match value:
        case str():
            if value.startswith(_MARK):
                yield Formula(where=where, text=value[1:].strip(), is_cel=True)
            elif is_template(value):
                yield Formula(where=where, text=value, is_cel=False)
        case Mapping():
            for key, item in value.items():
                yield from formulas(item, f"{where}.{key}")
        case list() | tuple():
            for index, item in enumerate(value):
                yield from formulas(item, f"{where}[{index}]")


def resolve(value: Any, variables: Mapping[str, Any]) -> Any:
    """Return `value` with everything computed. Raises ExpressionFailed and TemplateFailed."""
    match value:
        case str():
            if value.startswith(_MARK):
                return evaluate(value[1:].strip(), variables)
            return render(value, variables) if is_template(value) else value
        case Mapping():
            return {key: resolve(item, variables) for key, item in value.items()}
        case list() | tuple():
            return [resolve(item, variables) for item in value]
        case _:
            return value

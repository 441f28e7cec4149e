"""Settings: one frozen dataclass per service, read from the environment, every problem told at once."""

from __future__ import annotations

import dataclasses
import types
from collections.abc import Mapping
from datetime import timedelta
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")

PREFIX = "PROCTOR"
TRUE = frozenset({"1", "true", "yes", "on"})
FALSE = frozenset({"0", "false", "no", "off"})


class Secret(str):
    """Text that never shows in a repr, a log or an error; `str.__str__` still gives it to code that needs it."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "Secret('***')" if self else "Secret('')"


class SettingsError(Exception):
    """The environment does not make valid settings; `problems` has one sentence for each variable."""

    def __init__(self, problems: list[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


def variable(service: str, field: str) -> str:
    """Return the environment variable of a field: `PROCTOR_<SERVICE>_<FIELD>`, without SERVICE when it is empty."""
    return "_".join(part for part in (PREFIX, service.upper(), field.upper()) if part)


def load(cls: type[T], service: str, environ: Mapping[str, str]) -> T:
    """Return `cls` filled from `environ`; raise SettingsError that lists every problem.

    Fields may be str, int, float, bool, Path, Secret, timedelta (seconds), an Enum (by value), tuple[str, ...]
    (comma-separated) or one of these or None (empty is None). A dataclass may raise ValueError in `__post_init__`.
    """
    hints = get_type_hints(cls)
    values: dict[str, object] = {}
    problems: list[str] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = variable(service, field.name)
        if name in environ:
            try:
                values[field.name] = parse(hints[field.name], environ[name])
            except ValueError as error:
                problems.append(f"{name}: {error}")
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            problems.append(f"{name}: required, but not set")
    problems.extend(_unknown(cls, service, environ))
    if problems:
        raise SettingsError(problems)
    try:
        return cls(**values)
    except ValueError as error:
        raise SettingsError([f"{PREFIX}_{service.upper()}: {error}"]) from error


def _unknown(cls: type[Any], service: str, environ: Mapping[str, str]) -> list[str]:
    """Name variables that carry the service's prefix but no field's name: a misspelling must not pass in silence."""
    if not service:
        return []
    known = {variable(service, field.name) for field in dataclasses.fields(cls)}
    prefix = f"{PREFIX}_{service.upper()}_"
    return [
        f"{name}: no such setting; the settings are {', '.join(sorted(known))}"
        for name in sorted(environ)
        if name.startswith(prefix) and name not in known
    ]


def parse(hint: Any, text: str) -> object:
    """Return `text` as `hint`; the ValueError says what was expected, and repeats the text unless it is secret."""
    origin = get_origin(hint)
    if origin in (Union, types.UnionType):
        inner = [choice for choice in get_args(hint) if choice is not type(None)]
        return None if not text.strip() else parse(inner[0], text)
    if origin is tuple:
        return tuple(part.strip() for part in text.split(",") if part.strip())
    if hint is Secret:
        return Secret(text)
    if hint is str:
        return text
    if hint is bool:
        return _parse_bool(text)
    if hint is Path:
        return Path(text).expanduser()
    if hint is timedelta:
        return timedelta(seconds=_number(float, text, "a number of seconds"))
    if hint is int:
        return _number(int, text, "a whole number")
    if hint is float:
        return _number(float, text, "a number")
    if isinstance(hint, type) and issubclass(hint, Enum):
        return _member(hint, text)
    raise TypeError(f"settings cannot hold {hint!r}")


def _parse_bool(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered in TRUE | FALSE:
        return lowered in TRUE
    raise ValueError(f"expected true or false, got {text!r}")


def _number(kind: type[int | float], text: str, expected: str) -> float:
    try:
        return kind(text)
    except ValueError:
        raise ValueError(f"expected {expected}, got {text!r}") from None


def _member(hint: type[Enum], text: str) -> Enum:
    try:
        return hint(text.strip())
    except ValueError:
        raise ValueError(f"expected one of {', '.join(str(m.value) for m in hint)}, got {text!r}") from None

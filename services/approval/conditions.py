"""Conditions in CEL over a call's arguments and the principal it acts for.

A condition is checked when it is saved: syntax, names, functions, and one level of comprehension at most, because a
nested one costs the square of the arguments' length. What still goes wrong when it runs (a missing field, a wrong type)
is ConditionFailed, and the policy decides what that means.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from services.approval.errors import PolicyInvalid
from services.chassis.identity import Principal

if TYPE_CHECKING:
    import cel

MAX_LENGTH = 4096
VARIABLES = frozenset({"args", "principal"})
PRINCIPAL_FIELDS = frozenset({"user", "tenant", "groups", "scopes"})
TYPE_NAMES = frozenset({"bool", "bytes", "double", "duration", "int", "list", "map", "string", "timestamp", "uint"})
# The standard library as the evaluator has it; a call of anything else would only fail when it runs.
FUNCTIONS = frozenset(
    {
        *("bytes", "double", "duration", "dyn", "int", "string", "timestamp", "type", "uint"),
        *("contains", "endsWith", "matches", "size", "startsWith"),
        *("getDate", "getDayOfMonth", "getDayOfWeek", "getDayOfYear", "getFullYear", "getMonth"),
        *("getHours", "getMilliseconds", "getMinutes", "getSeconds"),
    }
)
STRING = re.compile(r"\"(?:\\.|[^\"\\])*\"|'(?:\\.|[^'\\])*'")
MACRO = re.compile(r"\.(?:all|exists|exists_one|map|filter)\(\s*([A-Za-z_]\w*)\s*,")


class ConditionFailed(Exception):
    """The condition could not be evaluated for this call, or gave something else than true or false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What conditions see."""

    arguments: Any
    principal: Principal

    def variables(self) -> Mapping[str, Any]:
        """Return the variables of the expression."""
        return {
            "args": self.arguments,
            "principal": {
                "user": self.principal.user,
                "tenant": self.principal.tenant,
                "groups": sorted(self.principal.groups),
                "scopes": sorted(self.principal.scopes),
            },
        }


def check_condition(text: str) -> None:
    """Raise PolicyInvalid unless `text` is empty or a condition that can be evaluated."""
    if text:
        _program(text)


def holds(text: str, facts: Facts) -> bool:
    """Return whether the condition holds; an empty one always does. Raises PolicyInvalid and ConditionFailed."""
    if not text:
        return True
    try:
        result = _program(text).execute(dict(facts.variables()))
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ConditionFailed(f"{type(error).__name__}: {error}") from error
    if not isinstance(result, bool):
        raise ConditionFailed(f"it gave {type(result).__name__} instead of true or false")
    return result


@lru_cache(maxsize=1024)
def _program(text: str) -> cel.Program:
    # Loaded by the first condition: the package brings a whole command line with it, and most starts need none.
    import cel

    if len(text) > MAX_LENGTH:
        raise PolicyInvalid(f"the condition has {len(text)} characters; the limit is {MAX_LENGTH}")
    try:
        program = cel.compile(text)
    except ValueError as error:
        raise PolicyInvalid(f"the condition {text!r} does not compile: {error}") from error
    bare = STRING.sub("''", text)
    _check_names(text, bare, program)
    _check_depth(text, bare)
    return program


def _check_names(text: str, bare: str, program: cel.Program) -> None:
    bound = set(MACRO.findall(bare))
    for name in program.variables():
        if name not in VARIABLES | TYPE_NAMES | bound:
            raise PolicyInvalid(f"the condition {text!r} names '{name}'; there is only {_list(VARIABLES)}")
    for name in program.functions():
        # Operators have names such as `_&&_` and `@in`.
        if name.isidentifier() and not name.startswith("_") and name not in FUNCTIONS:
            raise PolicyInvalid(f"the condition {text!r} calls '{name}', which does not exist")
    for name in re.findall(r"\bprincipal\s*\.\s*([A-Za-z_]\w*)", bare):
        if name not in PRINCIPAL_FIELDS:
            raise PolicyInvalid(f"the condition {text!r} names 'principal.{name}'; it has {_list(PRINCIPAL_FIELDS)}")


def _check_depth(text: str, bare: str) -> None:
    starts = {match.start() + match.group().index("(") for match in MACRO.finditer(bare)}
    open_parentheses: list[bool] = []
    for place, character in enumerate(bare):
        if character == "(":
            if place in starts and any(open_parentheses):
                raise PolicyInvalid(f"the condition {text!r} nests comprehensions; say it with one")
            open_parentheses.append(place in starts)
        elif character == ")" and open_parentheses:
            open_parentheses.pop()


def _list(names: frozenset[str]) -> str:
    return ", ".join(f"'{name}'" for name in sorted(names))

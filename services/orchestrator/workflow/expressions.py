"""CEL in workflows: which names an expression reads, and what it gives.

An expression is checked when the workflow is saved: syntax, functions, and one level of comprehension at most, because
a nested one costs the square of what it looks at. Names and types are checked against the scope (`scope.py`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from services.chassis.canonical import canonical_json

if TYPE_CHECKING:
    import cel

MAX_LENGTH = 4096
# Most that an expression may give, in bytes of JSON: what is doubled in a loop ends here.
MAX_RESULT = 64 * 1024
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
_MACROS = frozenset({"all", "exists", "exists_one", "map", "filter"})
_WORDS = frozenset({"true", "false", "null", "in"})
_TOKEN = re.compile(
    r"""\s+|//[^\n]*
    |(?P<string>[rRbB]{0,2}(?:\"\"\"(?:\\.|[^\\])*?\"\"\"|'''(?:\\.|[^\\])*?'''|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'))
    |(?P<number>\d[\w.]*)
    |(?P<name>[A-Za-z_]\w*)
    |(?P<sign>.)""",
    re.VERBOSE | re.DOTALL,
)

# A name as it is read, step by step: ("nodes", "draft", "text"). None is a step known only when it runs.
Reference = tuple[str | None, ...]


class ExpressionInvalid(ValueError):
    """The expression cannot be saved."""


class ExpressionFailed(Exception):
    """The expression could not be evaluated for these values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Token:
    kind: str
    text: str


@lru_cache(maxsize=1024)
def references(text: str) -> tuple[Reference, ...]:
    """Return the names that `text` reads, or raise ExpressionInvalid when it does not compile."""
    program = _compiled(text)
    for name in program.functions():
        # Operators have names such as `_&&_` and `@in`.
        if name.isidentifier() and not name.startswith("_") and name not in FUNCTIONS:
            raise ExpressionInvalid(f"{text!r} calls '{name}', which does not exist")
    tokens = _tokens(text)
    _check_depth(text, tokens)
    bound = {tokens[i + 3].text for i in range(len(tokens) - 4) if _opens_comprehension(tokens, i)}
    return tuple(dict.fromkeys(_chains(tokens, bound)))


def evaluate(text: str, variables: Mapping[str, Any]) -> Any:
    """Return what `text` gives, as JSON. Raises ExpressionFailed; the message names expression and cause."""
    try:
        result = _compiled(text).execute(dict(variables))
        size = len(canonical_json(result))
    except KeyError as error:
        raise ExpressionFailed(f"{text!r}: there is no {error}") from error
    except (ArithmeticError, LookupError, RuntimeError, TypeError, ValueError) as error:
        raise ExpressionFailed(f"{text!r}: {error}") from error
    if size > MAX_RESULT:
        raise ExpressionFailed(f"{text!r} gives {size} bytes; the limit is {MAX_RESULT}")
    return result


def sample(text: str, variables: Mapping[str, Any]) -> tuple[bool, Any]:
    """Return (whether the types fit, the result) for sample values; (True, None) when only values do not fit."""
    try:
        return True, _compiled(text).execute(dict(variables))
    except TypeError:
        return False, None
    except (ArithmeticError, LookupError, RuntimeError, ValueError):
        return True, None


@lru_cache(maxsize=1024)
def _compiled(text: str) -> cel.Program:
    # Loaded by the first expression: the package brings a whole command line with it, and most starts need none.
    import cel

    if len(text) > MAX_LENGTH:
        raise ExpressionInvalid(f"the expression has {len(text)} characters; the limit is {MAX_LENGTH}")
    try:
        return cel.compile(text)
    except ValueError as error:
        raise ExpressionInvalid(f"{text!r} is not CEL: {_first_line(error)}") from error


def _first_line(error: ValueError) -> str:
    said = str(error)
    return said.partition("ERROR: <input>:")[2].partition("\n")[0] or said.partition("\n")[0]


def _tokens(text: str) -> list[_Token]:
    return [_Token(kind=m.lastgroup, text=m.group()) for m in _TOKEN.finditer(text) if m.lastgroup]


def _opens_comprehension(tokens: list[_Token], at: int) -> bool:
    """Whether `.map(x,` or the like stands at `at`."""
    shape = [token.text for token in tokens[at : at + 5]]
    return (
        len(shape) == 5
        and (shape[0], shape[2], shape[4]) == (".", "(", ",")
        and shape[1] in _MACROS
        and tokens[at + 3].kind == "name"
    )


def _check_depth(text: str, tokens: list[_Token]) -> None:
    open_parentheses: list[bool] = []
    for at, token in enumerate(tokens):
        if token.text == "(" and token.kind == "sign":
            begins = at >= 2 and _opens_comprehension(tokens, at - 2)
            if begins and any(open_parentheses):
                raise ExpressionInvalid(f"{text!r} nests comprehensions; say it with one")
            open_parentheses.append(begins)
        elif token.text == ")" and token.kind == "sign" and open_parentheses:
            open_parentheses.pop()


def _chains(tokens: list[_Token], bound: set[str]) -> Iterator[Reference]:
    for at, token in enumerate(tokens):
        before = tokens[at - 1].text if at else ""
        after = tokens[at + 1].text if at + 1 < len(tokens) else ""
        if token.kind != "name" or before == "." or after == "(":
            continue
        if token.text not in _WORDS | TYPE_NAMES | bound:
            yield (token.text, *_steps(tokens, at + 1))


def _steps(tokens: list[_Token], at: int) -> Iterator[str | None]:
    """Yield the steps that follow a name: `.field` and `["field"]`; None for an index that is no text."""
    while True:
        shape = [token.text for token in tokens[at : at + 3]]
        if len(shape) >= 2 and shape[0] == "." and tokens[at + 1].kind == "name" and shape[2:] != ["("]:
            yield shape[1]
            at += 2
        elif len(shape) == 3 and shape[0] == "[" and tokens[at + 1].kind == "string" and shape[2] == "]":
            yield shape[1].strip("rRbB").strip("\"'")
            at += 3
        elif shape and shape[0] == "[":
            yield None
            return
        else:
            return

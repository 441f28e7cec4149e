"""Jinja for texts that users write: nothing but the given names in it, and nothing that makes much from little.

The sandbox keeps templates away from Python; what it leaves are time and memory. So loops do not nest, texts are
joined, repeated and replaced within MAX_OUTPUT only, and rendering has an end.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from jinja2 import StrictUndefined, Template, nodes
from jinja2.compiler import CodeGenerator, Frame
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

MAX_OUTPUT = 200_000
MAX_LENGTH = 100_000

# What would bring in another template, make one of its own, or keep what was written.
_FOREIGN = (
    nodes.Include,
    nodes.Import,
    nodes.FromImport,
    nodes.Extends,
    nodes.Macro,
    nodes.CallBlock,
    nodes.AssignBlock,
    nodes.FilterBlock,
)
# Methods of texts that make a long one of a short one; `join` and `replace` are there as filters.
_WIDENING = frozenset(
    {"center", "expandtabs", "format", "format_map", "join", "ljust", "replace", "rjust", "translate", "zfill"}
)
# Filters that do so, or that reach beyond the values.
_LEFT_OUT = ("attr", "center", "format", "indent", "pprint", "random", "urlize", "wordwrap", "xmlattr")


class TooLong(SecurityError):
    """A template made a longer text than it may."""

    def __init__(self, limit: int = MAX_OUTPUT) -> None:
        super().__init__(f"the template gives more than {limit} characters")


class _Generator(CodeGenerator):
    """Compiles `a ~ b` to a call that looks at the lengths first."""

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 - the base class names it
        self.write("environment.concatenated((")
        for each in node.nodes:
            self.visit(each, frame)
            self.write(", ")
        self.write("))")


class SafeEnvironment(ImmutableSandboxedEnvironment):
    """A field of a mapping comes before the mapping's own methods, and no operator makes much from little."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})
    code_generator_class = _Generator

    def __init__(self) -> None:
        super().__init__(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)
        self.globals.clear()
        for name in _LEFT_OUT:
            self.filters.pop(name)
        self.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
        self.filters["join"] = _joined
        self.filters["replace"] = _replaced

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        # Before the base class, which lets a text's own `format` pass in a safer form that pads all the same.
        return self.unsafe_undefined(obj, attribute) if attribute in _WIDENING else super().getattr(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if not isinstance(obj, Mapping) and isinstance(argument, str) and argument in _WIDENING:
            return self.unsafe_undefined(obj, argument)
        return super().getitem(obj, argument)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _WIDENING and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        numbers = isinstance(left, int | float) and isinstance(right, int | float)
        if operator == "+" and not numbers:
            if len(left) + len(right) > MAX_OUTPUT:
                raise TooLong
        elif operator == "**" or not numbers:
            raise SecurityError(f"'{operator}' works on two numbers only, and '**' not at all")
        return super().call_binop(context, operator, left, right)

    def concatenated(self, values: Iterable[Any]) -> str:
        """Return the values as one text."""
        return _within(str(value) for value in values)


def structure_problem(tree: nodes.Template) -> str:
    """Return what a template may not have although it compiles; empty when it may stand."""
    if any(any(tree.find_all(kind)) for kind in _FOREIGN):
        return "has an include, import or macro, or keeps a block; a template stands for itself"
    if any(loop.recursive or list(_inner_loops(loop)) for loop in tree.find_all(nodes.For)):
        return "has a loop inside a loop; say it with one"
    return ""


def rendered(template: Template, variables: Mapping[str, Any], limit: int = MAX_OUTPUT) -> str:
    """Return the text of a template of this environment. Raises TooLong, and whatever the template raises."""
    return _within(template.generate(**variables), limit)


def _within(pieces: Iterable[str], limit: int = MAX_OUTPUT) -> str:
    kept: list[str] = []
    length = 0
    for piece in pieces:
        length += len(piece)
        if length > limit:
            raise TooLong(limit)
        kept.append(piece)
    return "".join(kept)


def _joined(values: Iterable[Any], separator: str = "") -> str:
    def pieces() -> Iterator[str]:
        for index, value in enumerate(values):
            if index and separator:
                yield separator
            yield str(value)

    return _within(pieces())


def _replaced(value: Any, old: str, new: str) -> str:
    text = str(value)
    if len(text) + text.count(old) * max(len(new) - len(old), 0) > MAX_OUTPUT:
        raise TooLong
    return text.replace(old, new)


def _inner_loops(loop: nodes.For) -> Iterator[nodes.For]:
    for part in (*loop.body, *loop.else_):
        if isinstance(part, nodes.For):
            yield part
        yield from part.find_all(nodes.For)

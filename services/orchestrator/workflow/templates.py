"""Texts of workflows: Jinja in the immutable sandbox, with nothing in it but the scope's names."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

from services.orchestrator.workflow.expressions import Reference

MAX_OUTPUT = 200_000
MAX_LENGTH = 100_000


# What would bring in another template, or make one of its own.
_FOREIGN = (nodes.Include, nodes.Import, nodes.FromImport, nodes.Extends, nodes.Macro, nodes.CallBlock)
# Methods of texts that make a long one of a short one.
_WIDENING = frozenset(
    {"center", "expandtabs", "format", "format_map", "ljust", "replace", "rjust", "translate", "zfill"}
)


class TemplateInvalid(ValueError):
    """The template cannot be saved."""


class TemplateFailed(Exception):
    """The template could not be rendered with these values."""


class _Environment(ImmutableSandboxedEnvironment):
    """A field of a mapping comes before the mapping's own methods, and no operator makes much from little."""

    intercepted_binops = frozenset({"*", "**", "%"})

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, Mapping):
            return obj[attribute] if attribute in obj else self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        return attr not in _WIDENING and super().is_safe_attribute(obj, attr, value)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if operator == "**" or not (isinstance(left, int | float) and isinstance(right, int | float)):
            raise SecurityError(f"'{operator}' works on two numbers only, and '**' not at all")
        return super().call_binop(context, operator, left, right)


def _environment() -> _Environment:
    environment = _Environment(undefined=StrictUndefined, autoescape=False, keep_trailing_newline=False)
    environment.globals.clear()
    # As above; and those that reach beyond the values.
    for name in ("center", "format", "indent", "pprint", "xmlattr", "urlize", "random", "attr"):
        environment.filters.pop(name)
    environment.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    return environment


_JINJA = _environment()


def is_template(text: str) -> bool:
    """Whether `text` has anything that Jinja would act on."""
    return any(mark in text for mark in ("{{", "{%", "{#"))


@lru_cache(maxsize=1024)
def references(text: str) -> tuple[Reference, ...]:
    """Return the names that `text` reads, or raise TemplateInvalid when it does not compile."""
    if len(text) > MAX_LENGTH:
        raise TemplateInvalid(f"the template has {len(text)} characters; the limit is {MAX_LENGTH}")
    try:
        tree = _JINJA.parse(text)
        _compiled(text)
    except TemplateError as error:
        raise TemplateInvalid(f"{_short(text)} is not a template: {error}") from error
    if any(any(tree.find_all(kind)) for kind in _FOREIGN):
        raise TemplateInvalid(f"{_short(text)} has an include, import or macro; a template stands for itself")
    if any(loop.recursive or list(_inner_loops(loop)) for loop in tree.find_all(nodes.For)):
        raise TemplateInvalid(f"{_short(text)} has a loop inside a loop; say it with one")
    free = meta.find_undeclared_variables(tree)
    return tuple(dict.fromkeys(chain for chain in _chains(tree) if chain[0] in free))


def render(text: str, variables: Mapping[str, Any]) -> str:
    """Return the text, or raise TemplateFailed naming template and cause."""
    pieces: list[str] = []
    length = 0
    try:
        for piece in _compiled(text).generate(**variables):
            pieces.append(piece)
            length += len(piece)
            if length > MAX_OUTPUT:
                raise TemplateFailed(f"{_short(text)} gives more than {MAX_OUTPUT} characters")
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise TemplateFailed(f"{_short(text)}: {error}") from error
    return "".join(pieces)


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Template:
    return _JINJA.from_string(text)


def _inner_loops(loop: nodes.For) -> Iterator[nodes.For]:
    for part in (*loop.body, *loop.else_):
        if isinstance(part, nodes.For):
            yield part
        yield from part.find_all(nodes.For)


def _chains(node: nodes.Node) -> Iterator[Reference]:
    """Yield the longest names under `node`."""
    chain = _chain(node)
    if chain is not None:
        yield chain
        while isinstance(node, nodes.Getattr | nodes.Getitem):
            if isinstance(node, nodes.Getitem):
                yield from _chains(node.arg)
            node = node.node
        return
    for child in node.iter_child_nodes():
        yield from _chains(child)


def _chain(node: nodes.Node) -> Reference | None:
    match node:
        case nodes.Name(name=name, ctx="load"):
            return (name,)
        case nodes.Getattr():
            before = _chain(node.node)
            return (*before, node.attr) if before else None
        case nodes.Getitem():
            before = _chain(node.node)
            if before is None:
                return None
            step = node.arg.value if isinstance(node.arg, nodes.Const) else None
            return (*before, step if isinstance(step, str) else None)
        case _:
            return None


def _short(text: str) -> str:
    first = " ".join(text.split())
    return repr(first if len(first) <= 80 else first[:79] + "…")

"""Texts of workflows: Jinja with nothing in it but the scope's names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

from jinja2 import Template, TemplateError, meta, nodes

from services.orchestrator.templating import MAX_LENGTH, SafeEnvironment, rendered, structure_problem
from services.orchestrator.workflow.expressions import Reference


class TemplateInvalid(ValueError):
    """The template cannot be saved."""


class TemplateFailed(Exception):
    """The template could not be rendered with these values."""


_JINJA = SafeEnvironment()


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
    if problem := structure_problem(tree):
        raise TemplateInvalid(f"{_short(text)} {problem}")
    free = meta.find_undeclared_variables(tree)
    return tuple(dict.fromkeys(chain for chain in _chains(tree) if chain[0] in free))


def render(text: str, variables: Mapping[str, Any]) -> str:
    """Return the text, or raise TemplateFailed naming template and cause."""
    try:
        return rendered(_compiled(text), variables)
    except (TemplateError, ArithmeticError, LookupError, TypeError, ValueError, AttributeError) as error:
        raise TemplateFailed(f"{_short(text)}: {error}") from error


@lru_cache(maxsize=1024)
def _compiled(text: str) -> Template:
    return _JINJA.from_string(text)


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

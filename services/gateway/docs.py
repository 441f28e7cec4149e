"""`/docs`: the OpenAPI document as a page of its own, without scripts and without anything from another host."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse

POLICY = "default-src 'none'; style-src 'self' 'unsafe-inline'; base-uri 'none'; frame-ancestors 'none'"
_STYLE = """
:root { color-scheme: light dark; font: 16px/1.5 system-ui, sans-serif; }
body { max-width: 62rem; margin: 2rem auto; padding: 0 1rem; }
details { border: 1px solid color-mix(in srgb, currentColor 20%, transparent); border-radius: .5rem; margin: .5rem 0; }
summary { cursor: pointer; padding: .6rem .8rem; overflow-wrap: anywhere; }
details > div { padding: 0 .8rem .8rem; }
code, pre { font: .85rem/1.5 ui-monospace, monospace; }
table { border-collapse: collapse; width: 100%; }
td, th { text-align: left; vertical-align: top; padding: .25rem .5rem; }
b.method { display: inline-block; min-width: 4.5rem; }
"""
router = APIRouter(include_in_schema=False)


@router.get("/docs")
async def docs(request: Request) -> HTMLResponse:
    """Show every operation with its parameters, body and answers."""
    return HTMLResponse(render(request.app.openapi()), headers={"Content-Security-Policy": POLICY})


def render(document: dict[str, Any]) -> str:
    """Return the document as HTML."""
    info = document["info"]
    groups: dict[str, list[str]] = {}
    for path, item in document["paths"].items():
        for method, operation in item.items():
            tag = (operation.get("tags") or ["other"])[0]
            groups.setdefault(tag, []).append(_operation(method, path, operation))
    sections = "".join(f"<h2 id='{escape(tag)}'>{escape(tag)}</h2>{''.join(items)}" for tag, items in groups.items())
    schemas = "".join(_schema(name, value) for name, value in sorted(document["components"]["schemas"].items()))
    return (
        f"<!doctype html><html lang='en'><meta charset='utf-8'><meta name='viewport' content='width=device-width'>"
        f"<title>{escape(info['title'])}</title><style>{_STYLE}</style>"
        f"<h1>{escape(info['title'])} <small>{escape(info['version'])}</small></h1>"
        f"<p>{escape(info.get('description', ''))} The same as JSON: <a href='/openapi.json'>/openapi.json</a>.</p>"
        f"{sections}<h2>Schemas</h2>{schemas}</html>"
    )


def _operation(method: str, path: str, operation: dict[str, Any]) -> str:
    parameters = "".join(
        f"<tr><td><code>{escape(item['name'])}</code><td>{escape(item['in'])}<td>{_type(item.get('schema', {}))}"
        for item in operation.get("parameters", [])
    )
    body = "".join(
        f"<p>Body <code>{escape(kind)}</code>: {_type(content.get('schema', {}))}"
        for kind, content in operation.get("requestBody", {}).get("content", {}).items()
    )
    answers = "".join(_answer(status, answer) for status, answer in operation["responses"].items())
    return (
        f"<details><summary><b class='method'>{method.upper()}</b> <code>{escape(path)}</code></summary><div>"
        f"<p>{escape(operation.get('description', ''))}</p>"
        f"{f'<table>{parameters}</table>' if parameters else ''}{body}<table>{answers}</table></div></details>"
    )


def _answer(status: str, answer: dict[str, Any]) -> str:
    forms = "<br>".join(
        f"<code>{escape(kind)}</code> {_type(content.get('schema', {}))}"
        for kind, content in answer.get("content", {}).items()
    )
    return f"<tr><th>{escape(status)}<td>{forms or escape(answer.get('description', ''))}"


def _schema(name: str, schema: dict[str, Any]) -> str:
    required = set(schema.get("required", ()))
    rows = "".join(
        f"<tr><td><code>{escape(field)}</code>{' *' if field in required else ''}<td>{_type(value)}"
        f"<td>{escape(value.get('description', ''))}"
        for field, value in schema.get("properties", {}).items()
    )
    return (
        f"<details id='{_anchor(name)}'><summary><code>{escape(name)}</code></summary><div>"
        f"<p>{escape(schema.get('description', ''))}</p><table>{rows}</table></div></details>"
    )


def _type(schema: dict[str, Any]) -> str:
    """Return a schema in a few words, with links to the named ones."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"<a href='#{_anchor(name)}'>{escape(name)}</a>"
    if "enum" in schema:
        return " | ".join(f"<code>{escape(str(value))}</code>" for value in schema["enum"])
    for joined in ("anyOf", "oneOf"):
        if joined in schema:
            return " | ".join(_type(choice) for choice in schema[joined])
    if schema.get("type") == "array":
        return f"list of {_type(schema.get('items', {}))}"
    return escape(str(schema.get("type") or schema.get("description") or "any"))


def _anchor(name: str) -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "-", name)

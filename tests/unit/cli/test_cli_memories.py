"""The command line's view of memories."""

from __future__ import annotations

from io import StringIO

import httpx
import pytest
from rich.console import Console
from typer.testing import CliRunner

from services.cli import memories as module
from services.cli.gateway import Gateway
from services.cli.memories import memories, show_memories

KEPT = {"memory_id": "mem-1", "text": "Likes [red]tea\x1b[2J", "created_at": "2026-01-05T12:00:00Z"}


def gateway(seen: list[tuple[str, str]], rows: list[dict[str, str]]) -> Gateway:
    def answer(request: httpx.Request) -> httpx.Response:
        seen.append((request.method, request.url.path))
        if request.method == "DELETE":
            return httpx.Response(200, json={"deleted": 2})
        return httpx.Response(200, json={"memories": rows, "next_page_token": ""})

    return Gateway("http://gateway", "k1", httpx.MockTransport(answer))


@pytest.mark.parametrize(("rows", "told"), [([KEPT], "Likes [red]tea"), ([], "nothing is kept about you")])
def test_memories_are_listed_safe_for_a_terminal(rows: list[dict[str, str]], told: str) -> None:
    out = StringIO()
    show_memories(gateway([], rows), Console(file=out, width=100))
    assert told in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()


@pytest.mark.parametrize(
    ("arguments", "request_made", "code"),
    [
        (["forget", "mem-1"], [("DELETE", "/v1/memories/mem-1")], 0),
        (["forget", "--all"], [("DELETE", "/v1/memories")], 0),
        (["forget"], [], 2),
        (["forget", "mem-1", "--all"], [], 2),
        ([], [("GET", "/v1/memories")], 0),
        (["list"], [("GET", "/v1/memories")], 0),
    ],
)
def test_one_memory_or_all_are_erased(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], request_made: list[tuple[str, str]], code: int
) -> None:
    seen: list[tuple[str, str]] = []
    monkeypatch.setattr(module, "open_gateway", lambda: gateway(seen, []))
    result = CliRunner().invoke(memories, arguments)
    assert (result.exit_code, seen) == (code, request_made)

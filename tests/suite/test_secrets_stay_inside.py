"""A canary for every secret, led through every path: none of them is in a journal, a span, a log, a reply or a file."""

from __future__ import annotations

import io
import json
import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from starlette.applications import Starlette
from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

from services.chassis.logs import JsonFormatter
from services.chassis.serve import launch
from services.chassis.settings import Secret, variable
from services.cli.layout import NAMES
from tests.support.mcp_kit import serving
from tests.support.platform import KEY, recorded_telemetry, test_platform
from tests.support.suite import GRPC_SERVICES, Suite, environment, suite
from tests.support.suite_steps import ask, of, watch
from tests.support.upstream import Upstream
from tests.support.upstream_script import Cut, Say, Turn, call, fail, say

MODEL_KEY = "sk-canary-operator-model-000000"
OWN_KEY = "sk-canary-own-model-111111"
MCP_KEY = "canary-mcp-header-888888"
JUDGE_KEY = "canary-moderation-999999"
SECRETS: dict[str, Any] = {
    "PROCTOR_ORCHESTRATOR_MODELS_SECRET": "canary-models-secret-" + "2" * 32,
    "PROCTOR_APPROVAL_WEBHOOK_SECRET": "canary-webhook-secret-" + "3" * 32,
    "PROCTOR_RETRIEVAL_OPENAI_API_KEY": "sk-canary-embedder-444444",
    "PROCTOR_RETRIEVAL_REWRITE_API_KEY": "sk-canary-rewriter-555555",
    "PROCTOR_RETRIEVAL_WEB_SEARCH_KEY": "canary-web-search-666666",
    "PROCTOR_RETRIEVAL_WEAVIATE_API_KEY": "canary-weaviate-777777",
    "PROCTOR_RETRIEVAL_SUMMARY_API_KEY": "sk-canary-summariser-aaaaaa",
}
ASKING = {"name": "asking", "tools": [{"tool": "current_time", "policy": "TOOL_POLICY_ASK"}]}
CONFIG = """
[models.scripted]
upstream_name = "scripted"
base_url = "{model}"
key_env = "CANARY_MODEL_KEY"
roles = ["answer"]

[mcp.servers.echo]
url = "{echo}/mcp"
headers_env = {{ Authorization = "CANARY_MCP_KEY" }}

[guardrails.judge]
kind = "service"
on = ["input"]
url = "{echo}/judge"
key_env = "CANARY_JUDGE_KEY"
fail = "open"
"""


class Echo:
    """A service that refuses everything and repeats in its refusal what it was sent, headers and all."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"]}
        self.heard.append(headers.get("authorization", ""))
        await JSONResponse({"error": f"refused: {headers}"}, status_code=401)(scope, receive, send)


@contextmanager
def every_line() -> Iterator[io.StringIO]:
    """Capture what any library and service logs, as it would be written, down to DEBUG for the services."""
    sink = io.StringIO()
    handler = logging.StreamHandler(sink)
    handler.setFormatter(JsonFormatter("suite"))
    root, ours = logging.getLogger(), logging.getLogger("services")
    levels = root.level, ours.level
    root.addHandler(handler)
    root.setLevel(logging.INFO)
    ours.setLevel(logging.DEBUG)
    try:
        yield sink
    finally:
        root.removeHandler(handler)
        root.setLevel(levels[0])
        ours.setLevel(levels[1])


async def answered(running: Suite, upstream: Upstream) -> list[Any]:
    """Runs that succeed, pause, are cancelled, and fail in ways in which a server repeats the key."""
    upstream.script(call("current_time", json.dumps({"reason": "r"})), say("It is late."))
    paused = await ask(running, "What time is it?", inline_agent=ASKING, hold=0)
    approval_id = of(paused, "approval_requested")[0]["approval_id"]
    decided = await running.http.post(f"/v1/approvals/{approval_id}/decision", json={"decision": "approve"})
    told: list[Any] = [paused, decided.text, await watch(running, paused[0]["run_id"])]
    upstream.script(fail(401, message=f"Incorrect API key provided: {MODEL_KEY}."))
    told.append(await ask(running, "Hello?"))
    broken = Turn(steps=(Say(pieces=("half ",)), Cut()))
    upstream.script(broken, broken, fail(500, message=f"key {MODEL_KEY} overloaded"))
    told.append(await ask(running, "Again?"))
    assert [events[-1]["kind"] for events in told[-2:]] == ["run_failed", "run_failed"]
    assert of(told[-2], "run_failed")[0]["reason"] == "MODEL_UNAUTHORIZED"
    told.append((await running.http.get("/v1/tools/servers?connect=true")).text)
    return told


async def kept(running: Suite, upstream: Upstream) -> tuple[str, list[Any]]:
    """Keep a key and a model of one's own, use both, show both; return the key that was made."""
    made = (await running.http.post("/v1/keys", json={"name": "canary", "scopes": ["runs"]})).json()
    key = str(made["key"])
    mine = {"authorization": f"Bearer {key}"}
    wrong = await running.http.get("/v1/runs", headers={"authorization": f"Bearer {key[:-1]}x"})
    assert wrong.status_code == 401
    told: list[Any] = [wrong.text, (await running.http.get("/v1/runs", headers=mine)).text]
    own = {"name": "mine", "base_url": upstream.base_url, "upstream_name": "scripted", "api_key": OWN_KEY}
    created = await running.http.post("/v1/models/own", json=own)
    assert created.status_code == 201, created.text
    upstream.script(fail(403, message=f"{OWN_KEY} may not"))
    told += [created.text, await ask(running, "Mine?", model=created.json()["model_id"])]
    assert told[-1][-1]["kind"] == "run_failed"
    for path in ("/v1/keys", "/v1/models", "/v1/models/own", "/v1/runs", "/v1/conversations", "/v1/usage"):
        told.append((await running.http.get(path)).text)
    bad = await running.http.post("/v1/models/own", json=own | {"base_url": "ftp://x", "name": "worse"})
    assert bad.status_code == 400
    told.append(bad.text)
    return key, told


def files(folder: Path) -> dict[str, bytes]:
    """Return every file that the suite has written, the one whose purpose is to hold a secret left out."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and path.name not in {"models.key", "proctor.toml"}
    }


async def test_no_secret_is_where_it_does_not_belong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("MODEL", MODEL_KEY), ("MCP", MCP_KEY), ("JUDGE", JUDGE_KEY)):
        monkeypatch.setenv(f"CANARY_{name}_KEY", value)
    echo = Echo()
    recorded = recorded_telemetry(content=True)
    with every_line() as lines:
        async with (
            Upstream() as upstream,
            serving(echo, Starlette()) as echo_url,
            suite(
                config=CONFIG.format(model=upstream.base_url, echo=echo_url),
                platform=test_platform(telemetry=recorded.telemetry),
                services=("approval", "retrieval", "orchestrator"),
                PROCTOR_ORCHESTRATOR_PARKED_EVERY="0.2",
                PROCTOR_ORCHESTRATOR_MODEL_NETWORKS="127.0.0.0/8",
                # Nobody listens there: deliveries fail, and say so in the log.
                PROCTOR_APPROVAL_WEBHOOK_URLS="http://127.0.0.1:9/hook",
                **SECRETS,
            ) as running,
        ):
            told = await answered(running, upstream)
            key, shown = await kept(running, upstream)
            sent = [request.headers["authorization"] for request in upstream.requests]
            written = files(running.folder)
        secrets = {
            **SECRETS,
            "signing key": KEY,
            "model key": MODEL_KEY,
            "own model's key": OWN_KEY,
            "API key": key,
            "MCP server's key": MCP_KEY,
            "moderation's key": JUDGE_KEY,
        }
    # They were all in use: a canary that sings nowhere proves nothing.
    assert {f"Bearer {MODEL_KEY}", f"Bearer {OWN_KEY}"} <= set(sent)
    assert {MCP_KEY, f"Bearer {JUDGE_KEY}"} <= set(echo.heard)
    assert any(name.endswith("gateway.sqlite3") for name in written)
    spans = "".join(span.to_json() for span in recorded.spans())
    metrics = recorded.reader.get_metrics_data()
    assert metrics is not None
    assert "What time is it?" in spans
    places = {
        "spans": spans,
        "metrics": metrics.to_json(),
        "logs": lines.getvalue(),
        "events and replies": repr([*told, *shown]),
        **{name: content.decode("latin-1") for name, content in written.items()},
    }
    found = [(secret, place) for place, text in places.items() for secret, value in secrets.items() if value in text]
    assert found == []


@pytest.mark.parametrize("name", NAMES)
def test_every_secret_of_a_service_has_its_canary(name: str) -> None:
    settings = import_module(f"services.{name}.settings").Settings
    secrets = {variable(name, field) for field, kind in get_type_hints(settings).items() if kind is Secret}
    # What a database's URL holds is looked at below.
    assert secrets - {variable(name, "database_url")} <= set(SECRETS)


@pytest.mark.parametrize("name", GRPC_SERVICES)
async def test_a_database_that_does_not_answer_tells_no_password(name: str, tmp_path: Path) -> None:
    url = "postgresql+asyncpg://proctor:canary-password@127.0.0.1:1/proctor"
    variables = environment(tmp_path, "", "") | {variable(name, "database_url"): url}
    with every_line() as lines, pytest.raises(OSError, match="Connect call failed") as failure:
        await launch(name, test_platform(), variables)
    told = "".join(traceback.format_exception(failure.value)) + lines.getvalue()
    assert "canary-password" not in told

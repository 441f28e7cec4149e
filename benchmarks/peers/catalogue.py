"""How each peer is installed, started and asked."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.streaming.measure import Target
from benchmarks.streaming.processes import free_port, started

ROOT = Path(__file__).resolve().parents[2]
SERVERS = Path(__file__).with_name("servers")
Body = Callable[[str], dict[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """`command` is run in its environment's folder of programs; `{port}` stands for where it listens."""

    packages: Sequence[str]
    command: Sequence[str]
    path: str
    body: Body
    folder: str = "."
    ready: str = "/"
    environ: Mapping[str, str] | None = None
    has_tool: bool = True


def chat(model: str) -> Body:
    return lambda prompt: {"model": model, "stream": True, "messages": [{"role": "user", "content": prompt}]}


def ag_ui(prompt: str) -> dict[str, Any]:
    message = {"id": "m1", "role": "user", "content": prompt}
    rest: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": "t", "runId": uuid.uuid4().hex, "messages": [message], **rest}


def graph(prompt: str) -> dict[str, Any]:
    question = {"messages": [{"role": "user", "content": prompt}]}
    return {"assistant_id": "agent", "stream_mode": ["messages-tuple"], "input": question}


UVICORN = ("uvicorn", "--host", "127.0.0.1", "--port", "{port}", "--log-level", "warning")

PEERS: dict[str, Peer] = {
    "openai-agents": Peer(
        packages=("openai-agents>=0.4", "fastapi", "uvicorn[standard]"),
        command=(*UVICORN, "openai_agents_server:app"),
        path="/chat",
        body=lambda prompt: {"input": prompt},
    ),
    "langgraph": Peer(
        packages=("langgraph>=1", "langchain>=1", "langchain-openai>=1", "starlette", "uvicorn[standard]"),
        command=(*UVICORN, "langgraph_server:app"),
        path="/chat",
        body=lambda prompt: {"input": prompt},
        environ={"LANGSMITH_TRACING": "false"},
    ),
    "langgraph-dev": Peer(
        packages=("langgraph-cli[inmem]>=0.4", "langchain>=1", "langchain-openai>=1"),
        command=(
            "langgraph", "dev", "--no-browser", "--no-reload", "--host", "127.0.0.1", "--port", "{port}",
            "--server-log-level", "warning", "--n-jobs-per-worker", "256",
        ),
        path="/runs/stream",
        body=graph,
        folder="graph_folder",
        ready="/ok",
        environ={"LANGSMITH_TRACING": "false", "LANGGRAPH_CLI_NO_ANALYTICS": "1"},
    ),
    "pydantic-ai": Peer(
        packages=("pydantic-ai-slim[openai,ag-ui]>=1", "starlette", "uvicorn[standard]"),
        command=(*UVICORN, "pydantic_ai_server:app"),
        path="/",
        body=ag_ui,
    ),
    "hayhooks": Peer(
        packages=("hayhooks>=1",),
        command=("hayhooks", "run", "--host", "127.0.0.1", "--port", "{port}", "--pipelines-dir", "hayhooks"),
        path="/v1/chat/completions",
        body=chat("chat"),
        ready="/status",
        environ={"HAYSTACK_TELEMETRY_ENABLED": "False"},
    ),
    "litellm": Peer(
        packages=("litellm[proxy]>=1.80",),
        command=(
            "litellm", "--host", "127.0.0.1", "--port", "{port}", "--telemetry", "False",
            "--model", "openai/scripted", "--alias", "scripted",
        ),
        path="/v1/chat/completions",
        body=chat("scripted"),
        ready="/health/liveliness",
        environ={"LITELLM_LOCAL_MODEL_COST_MAP": "True"},
        has_tool=False,  # a proxy: tools are its callers'
    ),
}  # fmt: skip


@contextmanager
def peer(name: str, upstream_port: int, core: int) -> Iterator[Target]:
    """Install a peer unless it is, and run it against the upstream."""
    if name not in PEERS:
        raise SystemExit(f"no peer '{name}'; there are proctor, {', '.join(PEERS)}")
    this = PEERS[name]
    programs, port = _installed(name, this.packages), free_port()
    program, *rest = (word.format(port=port) for word in this.command)
    base_url = f"http://127.0.0.1:{upstream_port}/v1"
    environ = {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": "none",
        **(this.environ or {}),
    }
    log = programs.parent / "server.log"
    with started(
        [str(programs / program), *rest], f"http://127.0.0.1:{port}{this.ready}",
        core=core, environ=environ, folder=SERVERS / this.folder, log=log,
    ) as tree:  # fmt: skip
        yield Target(
            name=name,
            tree=tree,
            port=port,
            path=this.path,
            body=this.body,
            tool_path=this.path,
            tool_body=this.body if this.has_tool else None,
        )


def _installed(name: str, packages: Sequence[str]) -> Path:
    """Return the folder of programs of the peer's environment, made when it is missing or for other packages."""
    environment = ROOT / ".bench" / name
    stamp = environment / hashlib.sha256("\n".join(packages).encode()).hexdigest()[:16]
    if not stamp.exists():
        uv = Path(sys.executable).with_name("uv")
        subprocess.run([uv, "venv", "--quiet", "--clear", environment, "--python", sys.executable], check=True)
        subprocess.run(
            [uv, "pip", "install", "--quiet", "--python", environment / "bin" / "python", *packages], check=True
        )
        stamp.touch()
    return environment / "bin"

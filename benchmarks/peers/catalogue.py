"""How each peer is installed, started and asked."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.peers.backing import postgres, redis
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
    # The Python it needs, the suite's own when empty; what it needs beside itself, told to it by environment variables.
    python: str = ""
    backing: Callable[[Path], AbstractContextManager[Mapping[str, str]]] | None = None


def chat(model: str) -> Body:
    return lambda prompt: {"model": model, "stream": True, "messages": [{"role": "user", "content": prompt}]}


def ag_ui(prompt: str) -> dict[str, Any]:
    message = {"id": "m1", "role": "user", "content": prompt}
    rest: dict[str, Any] = {"state": {}, "tools": [], "context": [], "forwardedProps": {}}
    return {"threadId": "t", "runId": uuid.uuid4().hex, "messages": [message], **rest}


def graph(prompt: str) -> dict[str, Any]:
    question = {"messages": [{"role": "user", "content": prompt}]}
    return {"assistant_id": "agent", "stream_mode": ["messages-tuple"], "input": question}


@contextmanager
def docsgpt_backing(folder: Path) -> Iterator[Mapping[str, str]]:
    """Yield where DocsGPT finds PostgreSQL and Redis; its data stand in a folder of its own."""
    with postgres() as database, redis(folder) as cache, TemporaryDirectory(prefix="bench-") as home:
        yield {
            "DOCSGPT_HOME": home,
            "POSTGRES_URI": database,
            "CACHE_REDIS_URL": f"{cache}/2",
            "CELERY_BROKER_URL": f"{cache}/0",
            "CELERY_RESULT_BACKEND": f"{cache}/1",
        }


def docsgpt(prompt: str) -> dict[str, Any]:
    return {"question": prompt, "history": "[]", "conversation_id": None, "isNoneDoc": True}


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
        # Without a key, as all the others on loopback are asked without one.
        environ={
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "LITELLM_DANGEROUSLY_PERMIT_WEAK_OR_UNSET_MASTER_KEY": "true",
        },
        has_tool=False,  # a proxy: tools are its callers'
    ),
    "docsgpt": Peer(
        packages=("docsgpt>=1",),
        command=("docsgpt", "api", "--host", "127.0.0.1", "--port", "{port}"),
        path="/stream",
        body=docsgpt,
        ready="/api/health",
        # Every stream asks the same: its cache would answer instead of the model.
        environ={"LLM_PROVIDER": "openai", "LLM_NAME": "scripted", "LLM_CACHE_ENABLED": "False"},
        has_tool=False,  # its tools are made per user, over its own API
        python="3.12",
        backing=docsgpt_backing,
    ),
}  # fmt: skip


@contextmanager
def peer(name: str, upstream_port: int, core: int) -> Iterator[Target]:
    """Install a peer unless it is, and run it against the upstream."""
    if name not in PEERS:
        raise SystemExit(f"no peer '{name}'; there are proctor, {', '.join(PEERS)}")
    this = PEERS[name]
    programs, port = _installed(name, this), free_port()
    program, *rest = (word.format(port=port) for word in this.command)
    base_url = f"http://127.0.0.1:{upstream_port}/v1"
    environ = {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": "none",
        **(this.environ or {}),
    }
    log = programs.parent / "server.log"
    with ExitStack() as stack:
        if this.backing is not None:
            environ |= stack.enter_context(this.backing(programs.parent / "backing"))
        # A copy: some write their state where they are started, and would start with it the next time.
        folder = Path(stack.enter_context(TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True))) / "servers"
        shutil.copytree(SERVERS, folder)
        command, ready = [str(programs / program), *rest], f"http://127.0.0.1:{port}{this.ready}"
        tree = stack.enter_context(
            started(command, ready, core=core, environ=environ, folder=folder / this.folder, log=log)
        )
        yield Target(
            name=name,
            tree=tree,
            port=port,
            path=this.path,
            body=this.body,
            tool_path=this.path,
            tool_body=this.body if this.has_tool else None,
        )


def _installed(name: str, this: Peer) -> Path:
    """Return the folder of programs of the peer's environment, made when it is missing or for other packages."""
    environment = ROOT / ".bench" / name
    stamp = environment / hashlib.sha256("\n".join(this.packages).encode()).hexdigest()[:16]
    if not stamp.exists():
        uv = Path(sys.executable).with_name("uv")
        _run(uv, "venv", "--quiet", "--clear", environment, "--python", _interpreter(this.python))
        _run(uv, "pip", "install", "--quiet", "--python", environment / "bin" / "python", *this.packages)
        stamp.touch()
    return environment / "bin"


def _run(*command: str | Path) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"it could not be installed:\n{done.stderr[-2000:]}")


def _interpreter(version: str) -> str:
    """Return a Python of a version that runs; pyenv's programs on the PATH only run where a folder chooses them."""
    if not version:
        return sys.executable
    installed = sorted(Path.home().glob(f".pyenv/versions/{version}.*/bin/python"))
    for candidate in (shutil.which(f"python{version}"), *map(str, reversed(installed))):
        if candidate and not subprocess.run([candidate, "-c", ""], capture_output=True, check=False).returncode:
            return candidate
    raise SystemExit(f"it needs Python {version}, which is not here")

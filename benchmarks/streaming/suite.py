"""Proctor as a target: all five services under `proctor up`."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.streaming.measure import Target
from benchmarks.streaming.processes import free_port, started

ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def proctor(upstream_port: int, core: int | None) -> Iterator[Target]:
    """Run the suite, journal on, against the upstream; text is asked over Chat Completions, tools over its own wire."""
    port = free_port()
    environ = {
        "OPENAI_BASE_URL": f"http://127.0.0.1:{upstream_port}/v1",
        "OPENAI_API_KEY": "none",
        "PROCTOR_MODEL": "scripted",
    }
    listen = f"127.0.0.1:{port}"
    with tempfile.TemporaryDirectory(prefix="bench-", ignore_cleanup_errors=True) as folder:
        command = [sys.executable, "-m", "services.cli", "up", "--data-dir", folder, "--listen", listen]
        log = Path(folder) / "up.log"
        with started(command, f"http://{listen}/readyz", core=core, environ=environ, folder=ROOT, log=log) as tree:
            yield Target(
                name="proctor",
                tree=tree,
                folder=Path(folder),
                port=port,
                path="/v1/chat/completions",
                body=lambda prompt: {
                    "model": "scripted",
                    "stream": True,
                    "messages": [{"role": "user", "content": prompt}],
                },
                tool_path="/v1/runs",
                tool_body=lambda prompt: {"model": "scripted", "agent_id": "assistant", "input": prompt},
                # The first one on offer asks the user and wants arguments.
                tool="current_time",
            )

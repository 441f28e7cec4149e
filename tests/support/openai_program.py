"""Programs that use the stock `openai` package, run by a process of its own against a gateway's address."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

# The worker imports the package once and then runs one program for each line it reads.
WORKER = """
import json, sys, traceback
import openai
for line in sys.stdin:
    job = json.loads(line)
    values = []
    client = openai.OpenAI(base_url=job["url"] + "/v1", api_key=job["key"], max_retries=0, timeout=20)
    scope = {"client": client, "openai": openai, "json": json, "out": values.append}
    try:
        exec(job["program"], scope)
        reply = {"values": values}
    except BaseException:
        reply = {"error": traceback.format_exc()}
    finally:
        client.close()
    print(json.dumps(reply, default=lambda value: value.model_dump(warnings=False)), flush=True)
"""


class OpenAIWorker:
    """A process with the stock client. In a program `client`, `openai`, `json` and `out(value)` are at hand."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    async def run(self, url: str, program: str, key: str = "unused") -> list[Any]:
        """Run `program` against the gateway at `url` and return what it gave to `out`."""
        reply = await asyncio.to_thread(self._exchange, {"url": url, "key": key, "program": textwrap.dedent(program)})
        assert "error" not in reply, reply["error"]
        values: list[Any] = reply["values"]
        return values

    def _exchange(self, job: dict[str, str]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(job) + "\n")
        self._process.stdin.flush()
        reply: dict[str, Any] = json.loads(self._process.stdout.readline())
        return reply


@contextmanager
def openai_worker() -> Iterator[OpenAIWorker]:
    """Start the process for the length of the block."""
    environment = {**os.environ, "NO_PROXY": "*", "PYTHONWARNINGS": "ignore"}
    command = [sys.executable, "-c", WORKER]
    with subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield OpenAIWorker(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(timeout=20)

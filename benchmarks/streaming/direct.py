"""The stock `openai` client straight against the upstream: what every figure is compared with.

    python -m benchmarks.streaming.direct PORT

Reads lines of JSON `{"streams": 32, "rounds": 2, "prompt": "…"}` and answers each with times, tokens and CPU seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from typing import Any

import httpx2
import openai
import uvloop


async def one(client: openai.AsyncOpenAI, prompt: str, told: dict[str, Any]) -> None:
    """Stream one completion and note its first token."""
    started = time.monotonic()
    first = 0.0
    stream = await client.chat.completions.create(
        model="scripted", stream=True, messages=[{"role": "user", "content": prompt}]
    )
    async for chunk in stream:
        if chunk.choices and chunk.choices[0].delta.content:
            first = first or time.monotonic() - started
            told["tokens"] += 1
    told["first"].append(first)


async def several(client: openai.AsyncOpenAI, prompt: str, rounds: int, told: dict[str, Any]) -> None:
    for _ in range(rounds):
        await one(client, prompt, told)


async def work(port: int) -> None:
    """Answer orders until standard input ends."""
    limits = httpx2.Limits(max_connections=2000, max_keepalive_connections=2000)
    http = httpx2.AsyncClient(limits=limits, timeout=120)
    client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{port}/v1", api_key="none", max_retries=0, http_client=http)
    loop = asyncio.get_running_loop()
    while line := await loop.run_in_executor(None, sys.stdin.readline):
        order = json.loads(line)
        told: dict[str, Any] = {"first": [], "tokens": 0}
        began, cpu = time.monotonic(), time.process_time()
        await asyncio.gather(
            *(several(client, order["prompt"], order["rounds"], told) for _ in range(order["streams"]))
        )
        told["wall"], told["cpu"] = time.monotonic() - began, time.process_time() - cpu
        print(json.dumps(told), flush=True)


if __name__ == "__main__":
    uvloop.run(work(int(sys.argv[1])))

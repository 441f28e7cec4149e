"""A typed client of Proctor, sync and async, over HTTP or gRPC; streams survive lost connections.

from proctor.client import Client, approve

with Client("http://127.0.0.1:8080") as proctor:
run = proctor.ask("How many days of leave do I have?")
for event in run:
print(event.answer_delta.text, end="")
print(run.answer.citations)
"""

from __future__ import annotations

from proctor.client.answer import Answer
from proctor.client.async_client import AsyncClient, AsyncRun
from proctor.client.decisions import answer, approve, deny, edit, end, go_on, skip, tool_result
from proctor.client.errors import ConnectionLost, ProctorError
from proctor.client.sync_client import Client, Run

__all__ = [
    "Answer",
    "AsyncClient",
    "AsyncRun",
    "Client",
    "ConnectionLost",
    "ProctorError",
    "Run",
    "answer",
    "approve",
    "deny",
    "edit",
    "end",
    "go_on",
    "skip",
    "tool_result",
]

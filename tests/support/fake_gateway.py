"""A gateway for tests of the page: serves its files and plays scripted runs over real HTTP, with real breaks."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import Any

from tests.support.fake_gateway_http import handler_for
from tests.support.fake_run import Cancelled, FakeRun, Json

Script = Callable[[FakeRun], None]


class FakeGateway:
    """State of the fake: scripts by the first words of a question, runs, approvals, and what was requested."""

    def __init__(self) -> None:
        self.scripts: dict[str, Script] = {}
        self.runs: dict[str, FakeRun] = {}
        self.approvals: dict[str, Json] = {}
        self.artifacts: dict[str, tuple[str, bytes]] = {}
        self.sources: list[Json] = [
            {"source_id": "s1", "name": "handbook", "documents": 8, "passages": 96, "shared": True}
        ]
        self.documents: dict[str, list[Json]] = {"s1": []}
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []
        self.released: set[str] = set()
        self.breaks: dict[str, list[int]] = {}  # question → sequences after which a connection is cut, once each
        self.keeps_conversations = True
        self.rules: list[Json] = []
        self.memories: list[Json] = []
        self.me: Json = {"tenant": "local", "user": "local", "scopes": ["*"], "trace_url": ""}
        self.quotas: list[Json] = []
        self.usage: list[Json] = []  # rows of GET /v1/usage; without any there is no such route
        self.models = ["reader", "gpt-large", "agent/assistant"]
        self.agents: list[Json] = [{"agent_id": name, "name": name} for name in ("assistant", "research")]
        self.prompts: list[Json] = []
        self.titles: dict[str, str] = {}
        self.deleted: set[str] = set()
        self.key = ""  # when set, requests need it
        self.epoch = 0  # raised to cut every open stream
        self.online = True
        self.url = ""
        self.lock = threading.Lock()

    def conversations(self, query: str = "") -> list[Json]:
        """Return conversations that say `query`, the latest first, titled by their first question until renamed."""
        first = {run.conversation_id: run.question for run in reversed(self.runs.values())}
        return [
            {"conversation_id": name, "title": self.titles.get(name, question)}
            for name, question in first.items()
            if name not in self.deleted and (query in json.dumps(self.messages(name)) or query in question)
        ]

    def messages(self, conversation: str) -> list[Json]:
        """Return the messages of finished runs, as the conversation keeps them."""
        kept: list[Json] = []
        for run in self.runs.values():
            if run.conversation_id != conversation or not run.ended or "run_completed" not in run.events[-1]:
                continue
            files = [{"file": {"artifact_id": one, "name": one[4:]}} for one in run.body.get("attachments", [])]
            user = {"role": "ROLE_USER", "parts": [{"text": run.question}, *files]}
            answer = {"role": "ROLE_ASSISTANT", "parts": [{"text": run.events[-1]["run_completed"]["text"]}]}
            kept += [
                {"run_id": run.run_id, "message": user},
                {"run_id": run.run_id, "message": answer, "rating": "RATING_GOOD"},
            ]
        return kept

    def start_run(self, body: Json) -> FakeRun:
        """Start a run, or return the one that this request_id started."""
        with self.lock:
            known = next((run for run in self.runs.values() if run.body["request_id"] == body["request_id"]), None)
            if known:
                return known
            run = FakeRun(self, f"run-{len(self.runs) + 1}", body)
            self.runs[run.run_id] = run
        threading.Thread(target=self._play, args=(run,), daemon=True).start()
        return run

    def _play(self, run: FakeRun) -> None:
        script = next((script for start, script in self.scripts.items() if run.question.startswith(start)), None)
        run.emit(
            "run_started",
            conversation_id=run.conversation_id,
            agent_name="assistant",
            agent_id="assistant",
            model="reader",
            question=run.question,
            user_message_id=f"um-{run.run_id}",
            trace_id="4bf92f3577b34da6a3ce929d0e0e4736",
        )
        try:
            if script is None:
                run.emit("run_completed", text="", message_id="m", finish_reason="stop")
            else:
                script(run)
        except Cancelled:
            run.emit("run_cancelled", cancelled_by="local", partial_text="", message_id="")

    def release(self, name: str) -> None:
        """Let scripts that wait for `name` go on."""
        self.released.add(name)
        self._wake()

    def cut(self) -> None:
        """Break every open stream, as a lost network does."""
        self.epoch += 1
        self._wake()

    def _wake(self) -> None:
        for run in list(self.runs.values()):
            with run.changed:
                run.changed.notify_all()

    @contextmanager
    def serve(self, port: int = 0) -> Iterator[str]:
        """Serve on loopback and yield the address."""
        server = ThreadingHTTPServer(("127.0.0.1", port), handler_for(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        thread.start()
        self.url = f"http://127.0.0.1:{server.server_address[1]}"
        try:
            yield self.url
        finally:
            for run in self.runs.values():
                run.cancelled = True
            self.cut()
            server.shutdown()
            server.server_close()

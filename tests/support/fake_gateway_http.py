"""The HTTP side of the fake gateway."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote, urlsplit

from tests.support.fake_run import FakeRun, Json

if TYPE_CHECKING:
    from tests.support.fake_gateway import FakeGateway

WEB = Path(__file__).parents[2] / "services" / "gateway" / "web"
TYPES = {
    ".js": "text/javascript",
    ".css": "text/css",
    ".html": "text/html",
    ".svg": "image/svg+xml",
    ".woff2": "font/woff2",
}
# The policy that the gateway sends with index.html; services/gateway/web/README.md states it.
PAGE_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' blob: data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; "
    "require-trusted-types-for 'script'; trusted-types dompurify"
)


def handler_for(gateway: FakeGateway) -> type[BaseHTTPRequestHandler]:
    """Return a request handler bound to the gateway."""

    class Handler(_Handler):
        state = gateway

    return Handler


class _Handler(BaseHTTPRequestHandler):
    state: FakeGateway
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *arguments: Any) -> None:  # noqa: A002 - the base class names it
        pass

    def do_GET(self) -> None:
        path, query = self._open(None)
        match path.split("/")[1:]:
            case ["assets", *rest]:
                self._file(WEB.joinpath(*rest))
            case ["v1", *_] if self._refused():
                pass
            case ["v1", "runs"]:
                wanted = query.get("conversation_id", [""])[0]
                runs = [
                    run.as_json() for run in reversed(self.state.runs.values()) if wanted in ("", run.conversation_id)
                ]
                self._json({"runs": runs})
            case ["v1", "runs", run_id, "events"]:
                self._watch(run_id, int(self.headers.get("Last-Event-ID") or 0))
            case ["v1", "conversations"] if self.state.keeps_conversations:
                self._json({"conversations": self.state.conversations(query.get("query", [""])[0])})
            case ["v1", "conversations", name] if self.state.keeps_conversations:
                self._json({"messages": self.state.messages(name)})
            case ["v1", "me"]:
                self._json(self.state.me)
            case ["v1", "usage"] if self.state.usage:
                self._json({"days": self.state.usage})
            case ["v1", "quotas"]:
                self._json({"quotas": self.state.quotas})
            case ["v1", "memories"]:
                self._json({"memories": self.state.memories})
            case ["v1", "allow-rules"]:
                self._json({"rules": self.state.rules})
            case ["v1", "approvals"]:
                states = {f"APPROVAL_STATE_{state.upper()}" for state in query.get("state", [])}
                tool = query.get("tool", [""])[0]
                found = [
                    a
                    for a in self.state.approvals.values()
                    if (not states or a["state"] in states) and tool in ("", a["tool"])
                ]
                self._json({"approvals": found[::-1]})
            case ["v1", "sources"]:
                self._json({"sources": self.state.sources})
            case ["v1", "sources", source, "documents"]:
                self._json({"documents": self.state.documents.get(source, [])})
            case ["v1", "models"]:
                self._json({"data": [{"id": name} for name in self.state.models]})
            case ["v1", "agents"]:
                self._json({"agents": self.state.agents})
            case ["v1", "agents", name]:
                self._json({"agent": next(agent for agent in self.state.agents if agent["agent_id"] == name)})
            case ["v1", "prompts"]:
                self._json({"prompts": self.state.prompts})
            case ["v1", "artifacts", artifact]:
                media_type, data = self.state.artifacts.get(artifact, ("text/plain", b"x"))
                self._bytes(data, media_type)
            case ["v1", "passages", passage]:
                self._json(
                    {
                        "passage": {"passage_id": passage, "text": f"The whole passage {passage}."},
                        "before": "",
                        "after": "",
                    }
                )
            case ["v1", *_]:
                self._problem(404, "NOT_FOUND", f"there is nothing at {path}")
            case _:
                self._file(WEB / "index.html", {"Content-Security-Policy": PAGE_POLICY})

    def do_POST(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        is_json = "json" in (self.headers.get("Content-Type") or "")
        path, _ = self._open(json.loads(raw) if is_json and raw else raw)
        body: Any = json.loads(raw) if is_json and raw else {}
        match path.split("/")[1:]:
            case ["v1", *_] if self._refused():
                pass
            case ["v1", "runs"]:
                self._stream(self.state.start_run(body), 0)
            case ["v1", "runs", run_id, "cancel"]:
                run = self.state.runs[run_id]
                with run.changed:
                    run.cancelled = True
                    run.changed.notify_all()
                self._json({"state": "RUN_STATE_RUNNING"}, 202)
            case ["v1", "approvals", approval_id, "decision"]:
                self._decide(approval_id, body)
            case ["v1", "attachments"]:
                self._attach(raw)
            case ["v1", "conversations", _, "messages", _, "feedback"]:
                self._json({})
            case ["v1", "sources"]:
                self.state.sources.append(
                    {"source_id": body["name"], "name": body["name"], "documents": 0, "passages": 0}
                )
                self._json(self.state.sources[-1], 201)
            case ["v1", "sources", source, "documents"]:
                self._ingest(source, raw)
            case _:
                self._problem(404, "NOT_FOUND", f"there is nothing at {path}")

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path, _ = self._open(body)
        self.state.titles[path.rsplit("/", 1)[1]] = body["title"]
        self._json({})

    def do_PUT(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        path, query = self._open(body)
        self._without_quota(path, query)
        scope, subject = path.rsplit("/", 1)[1], query.get("subject", [""])[0]
        self.state.quotas.append({"scope": f"QUOTA_SCOPE_{scope.upper()}", "subject": subject, **body})
        self._json({"quota": self.state.quotas[-1]})

    def _without_quota(self, path: str, query: dict[str, list[str]]) -> None:
        gone = (f"QUOTA_SCOPE_{path.rsplit('/', 1)[1].upper()}", query.get("subject", [""])[0])
        self.state.quotas = [quota for quota in self.state.quotas if (quota["scope"], quota["subject"]) != gone]

    def do_DELETE(self) -> None:
        path, query = self._open(None)
        name = path.rsplit("/", 1)[1]
        if path.startswith("/v1/quotas/"):
            self._without_quota(path, query)
        self.state.deleted.add(name)
        self.state.rules = [rule for rule in self.state.rules if rule["rule_id"] != name]
        kept = [memory for memory in self.state.memories if memory["memory_id"] != name]
        self.state.memories = [] if path == "/v1/memories" else kept
        self.send_response(204)
        self.end_headers()

    def _open(self, body: Any) -> tuple[str, dict[str, list[str]]]:
        parts = urlsplit(self.path)
        self.state.requests.append((self.command, self.path, dict(self.headers), body))
        return unquote(parts.path), parse_qs(parts.query)

    def _refused(self) -> bool:
        if not self.state.online:
            self.close_connection = True
            self.connection.close()
            return True
        if self.state.key and self.headers.get("Authorization") != f"Bearer {self.state.key}":
            self._problem(401, "UNAUTHENTICATED", "send 'Authorization: Bearer <key>'")
            return True
        return False

    def _decide(self, approval_id: str, body: Json) -> None:
        record = self.state.approvals.get(approval_id)
        if record is None:
            return self._problem(404, "NOT_FOUND", f"there is no approval '{approval_id}'")
        if record["state"] != "APPROVAL_STATE_PENDING":
            return self._problem(409, "ALREADY_DECIDED", f"approval '{approval_id}' was decided by 'ada' already")
        record["decision"] = body
        run = self.state.runs[record["run_id"]]
        with run.changed:
            run.changed.notify_all()
        return self._json({"approval": record, "decided_now": True})

    def _attach(self, raw: bytes) -> None:
        name = raw.split(b'filename="', 1)[1].split(b'"', 1)[0].decode()
        if name.endswith(".exe"):
            return self._problem(413, "TOO_LARGE", f"'{name}' is too large")
        return self._json({"artifact_id": f"att-{name}", "name": name, "size": len(raw)}, 201)

    def _ingest(self, source: str, raw: bytes) -> None:
        name = raw.split(b'name="path"\r\n\r\n', 1)[1].split(b"\r\n", 1)[0].decode()
        self._begin_stream()
        failed = name.endswith(".exe")
        states = ["QUEUED", "FAILED"] if failed else ["QUEUED", "PARSING", "INDEXING", "DONE"]
        for state in states:
            message = "this type is not supported; send text, Markdown, HTML or PDF" if state == "FAILED" else ""
            progress = {
                "path": name,
                "state": f"DOCUMENT_STATE_{state}",
                "passages": 4 * (state == "DONE"),
                "message": message,
            }
            self.wfile.write(f"event: progress\ndata: {json.dumps(progress)}\n\n".encode())
        if not failed:
            document = {
                "document_id": name,
                "path": name,
                "title": name,
                "state": "DOCUMENT_STATE_DONE",
                "size": len(raw),
            }
            known = next((item["source_id"] for item in self.state.sources if item["name"] == source), source)
            self.state.documents.setdefault(known, []).append(document)

    def _watch(self, run_id: str, after: int) -> None:
        run = self.state.runs.get(run_id)
        if run is None:
            return self._problem(404, "RUN_NOT_FOUND", f"there is no run '{run_id}'")
        return self._stream(run, after)

    def _stream(self, run: FakeRun, after: int) -> None:
        epoch = self.state.epoch
        self._begin_stream()
        position = 0
        try:
            while True:
                fresh = self._next(run, position, epoch)
                position += len(fresh)
                for event in fresh:
                    if event["sequence"] > after and not self._write(run, event):
                        return
                self.wfile.write(b": keep-alive\n\n")
                if run.ended or self.state.epoch != epoch:
                    return
        except OSError:
            return  # the page went away

    def _next(self, run: FakeRun, position: int, epoch: int) -> list[Json]:
        """Wait for events after `position`, or for a reason to stop."""
        with run.changed:
            run.changed.wait_for(
                lambda: len(run.events) > position or self.state.epoch != epoch or run.cancelled, timeout=10
            )
            return run.events[position:]

    def _write(self, run: FakeRun, event: Json) -> bool:
        """Write one event; False when the script of breaks cuts the connection in its middle."""
        kind = list(event)[-1]
        text = f"id: {event['sequence']}\nevent: {kind}\ndata: {json.dumps(event)}\n\n".encode()
        breaks = self.state.breaks.get(run.question, [])
        if breaks and event["sequence"] >= breaks[0]:
            breaks.pop(0)
            self.wfile.write(text[: len(text) // 2])
            return False
        self.wfile.write(text)
        return True

    def _begin_stream(self) -> None:
        self.close_connection = True
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()

    def _file(self, path: Path, headers: dict[str, str] | None = None) -> None:
        if not path.is_file():
            return self._problem(404, "NOT_FOUND", f"there is no file '{path.name}'")
        return self._bytes(path.read_bytes(), TYPES[path.suffix], headers)

    def _json(self, value: Any, status: int = 200) -> None:
        self._bytes(json.dumps(value).encode(), "application/json", status=status)

    def _problem(self, status: int, reason: str, detail: str) -> None:
        body = {"status": status, "reason": reason, "detail": detail, "title": reason}
        self._bytes(json.dumps(body).encode(), "application/problem+json", status=status)

    def _bytes(self, data: bytes, media_type: str, headers: dict[str, str] | None = None, status: int = 200) -> None:
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Content-Type-Options", "nosniff")
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

"""One scripted run of the fake gateway: its journal and what its script needs to write it."""

from __future__ import annotations

import hashlib
import json
import threading
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.support.fake_gateway import FakeGateway

TERMINAL = {"run_completed", "run_failed", "run_cancelled"}
Json = dict[str, Any]


def stamp(moment: datetime) -> str:
    """Return an RFC 3339 timestamp."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Cancelled(Exception):
    """The run was asked to stop while its script waited."""


class FakeRun:
    """One run: its journal, and what its script needs to write it."""

    def __init__(self, gateway: FakeGateway, run_id: str, body: Json) -> None:
        self.gateway = gateway
        self.run_id = run_id
        self.body = body
        self.question = body["input"]
        self.conversation_id = body.get("conversation_id") or f"conv-{run_id}"
        self.events: list[Json] = []
        self.changed = threading.Condition()
        self.cancelled = False
        self.created = datetime.now(UTC)
        self._sequence = 0

    @property
    def ended(self) -> bool:
        return bool(self.events) and bool(TERMINAL & self.events[-1].keys())

    def emit(self, kind: str, /, *, step_id: str = "", **body: Any) -> None:
        """Append one event; numbers rise with holes, as the journal's do."""
        if kind.startswith("step_"):
            body["step_id"] = step_id
        with self.changed:
            self._sequence += 3 if kind == "run_started" else 1
            self.events.append(
                {
                    "run_id": self.run_id,
                    "sequence": self._sequence,
                    "at": stamp(datetime.now(UTC)),
                    "attempt": 1,
                    "step_id": step_id,
                    kind: body,
                }
            )
            self.changed.notify_all()

    def say(self, text: str, call: str = "m1", *, size: int = 12, pace: float = 0.0) -> None:
        """Write an answer in pieces of `size` characters, `pace` seconds apart."""
        for start in range(0, len(text), size):
            self.emit("answer_delta", text=text[start : start + size], model_call_id=call)
            if pace:
                self.rest(pace)

    def rest(self, seconds: float) -> None:
        """Let time pass, for scripts that are looked at."""
        with self.changed:
            if self.changed.wait_for(lambda: self.cancelled, timeout=seconds):
                raise Cancelled

    def wait_for(self, name: str) -> None:
        """Stop here until the test calls `gateway.release(name)`."""
        with self.changed:
            self.changed.wait_for(lambda: self.cancelled or name in self.gateway.released, timeout=60)
        if self.cancelled:
            raise Cancelled

    def decided(self, record: Json) -> None:
        """Stop here until somebody decides about the record."""
        with self.changed:
            self.changed.wait_for(lambda: self.cancelled or "decision" in record, timeout=60)
        if self.cancelled or "decision" not in record:
            raise Cancelled

    def ask(self, call_id: str, tool: str, arguments: Json, reason: str, seconds: float = 120) -> Json:
        """Request an approval and return the decision, or `{"decision": "expired"}`."""
        approval_id = f"ap-{self.run_id}-{call_id}"
        now = datetime.now(UTC)
        record: Json = {
            "approval_id": approval_id,
            "kind": "APPROVAL_KIND_TOOL",
            "state": "APPROVAL_STATE_PENDING",
            "run_id": self.run_id,
            "call_id": call_id,
            "tool": tool,
            "arguments_json": arguments,
            "reason": reason,
            "requested_by": "local",
            "arguments_digest": hashlib.sha256(json.dumps(arguments, sort_keys=True).encode()).hexdigest(),
            "policy": "run_code asks by default",
            "requested_at": stamp(now),
            "deadline": stamp(now + timedelta(seconds=seconds)),
            "parameters_json": {"type": "object", "properties": {"code": {"type": "string"}}, "required": ["code"]},
        }
        self.gateway.approvals[approval_id] = record
        shared = ("arguments_json", "arguments_digest", "reason", "deadline", "policy", "parameters_json")
        asked = {name: record[name] for name in shared}
        self.emit("approval_requested", approval_id=approval_id, call_id=call_id, tool=tool, **asked)
        waits = {"call_id": call_id, "approval_id": approval_id, "tool": tool}
        self.emit("run_paused", pending=[waits], deadline=record["deadline"])
        with self.changed:
            self.changed.wait_for(lambda: self.cancelled or "decision" in record, timeout=seconds)
        if self.cancelled:
            record["state"] = "APPROVAL_STATE_CANCELLED"
            raise Cancelled
        return self._resolve(record, call_id, now)

    def _resolve(self, record: Json, call_id: str, asked: datetime) -> Json:
        decision: Json = record.get("decision", {"decision": "expired"})
        ending = {"approve": "APPROVED", "deny": "DENIED", "edit": "EDITED", "answer": "ANSWERED", "expired": "EXPIRED"}
        state = ending[decision["decision"]]
        record["state"] = f"APPROVAL_STATE_{state}"
        record["decided_by"] = "" if state == "EXPIRED" else "local"
        waited = (datetime.now(UTC) - asked).total_seconds()
        self.emit(
            "approval_resolved",
            approval_id=record["approval_id"],
            call_id=call_id,
            resolution=f"RESOLUTION_{state}",
            decided_by=record["decided_by"],
            comment=decision.get("comment", ""),
            waited=f"{waited:.3f}s",
            edited_arguments_json=decision.get("arguments"),
        )
        self.emit("run_resumed", paused=f"{waited:.3f}s", cause="decision")
        return decision

    def as_json(self) -> Json:
        """Return the run as GET /v1/runs shows it."""
        kind = next(iter(TERMINAL & self.events[-1].keys()), "run_running") if self.events else "run_running"
        listed: Json = {
            "run_id": self.run_id,
            "conversation_id": self.conversation_id,
            "question": self.question[:200],
            "state": f"RUN_STATE_{kind.removeprefix('run_').upper()}",
            "agent_name": "assistant",
            "model": "reader",
            "created_at": stamp(self.created),
            "labels": self.body.get("labels", {}),
            "usage": {"input_tokens": 812, "output_tokens": 96},
        }
        if self.ended:
            listed["finished_at"] = self.events[-1]["at"]
        return listed

"""Asking: follow a run to its end in the terminal, and put its questions to whoever sits there."""

from __future__ import annotations

import json
import select
import sys
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from typing import Any

from rich.console import Console
from rich.markup import escape

from services.cli.gateway import RECONNECTS, Gateway, GatewayError, ServerEvent
from services.cli.show import RunView, plain

EXIT = {"run_completed": 0, "run_failed": 1, "run_cancelled": 130}
POLL = 1.5
Prompt = Callable[[dict[str, Any]], None]


def ask(
    gateway: Gateway,
    question: str,
    console: Console,
    prompt: Prompt | None,
    answer: Prompt | None = None,
    **body: Any,
) -> int:
    """Start a run and follow it; returns the exit code that its end stands for.

    `prompt` is given requests for approval, `answer` questions.
    """
    events = gateway.stream("POST", "/v1/runs", json={"input": question, **body})
    return follow(gateway, events, console, prompt, answer)


def follow(
    gateway: Gateway,
    events: Iterator[ServerEvent],
    console: Console,
    prompt: Prompt | None,
    answer: Prompt | None = None,
) -> int:
    """Show events to the terminal one; a broken stream is taken up again after the last event seen."""
    view = RunView(console)
    for event in resumed(gateway, events):
        view.show(event)
        if prompt is not None and "approval_requested" in event:
            prompt(event["approval_requested"])
        if answer is not None and "questions_asked" in event:
            answer(event["questions_asked"])
        for kind, code in EXIT.items():
            if kind in event:
                return code
    raise GatewayError("the stream ended before the run did; look at it with `proctor runs show`")


def resumed(gateway: Gateway, events: Iterator[ServerEvent]) -> Iterator[dict[str, Any]]:
    """Yield the events of a run, watching it again when the connection breaks or the stream ends early."""
    run_id, last, failures = "", "", 0
    while True:
        try:
            for event in events:
                body = json.loads(event.data)
                if "run_id" not in body:
                    continue
                run_id, last, failures = body["run_id"], event.id, 0
                yield body
                if any(kind in body for kind in EXIT):
                    return
        except GatewayError as error:
            # A refusal is final; a lost connection is not, once there is a run to come back to.
            if error.status or not run_id:
                raise
        failures += 1
        if failures > RECONNECTS or not run_id:
            raise GatewayError(f"the stream of run {run_id or '?'} broke {failures} times; try `proctor runs show`")
        time.sleep(min(0.2 * 2**failures, 5.0))
        events = gateway.stream("GET", f"/v1/runs/{run_id}/events", headers={"Last-Event-ID": last})


class Decider:
    """Puts an approval to the person at the terminal, and notices when somebody else decides it first."""

    def __init__(self, gateway: Gateway, console: Console) -> None:
        self._gateway = gateway
        self._console = console

    def __call__(self, requested: dict[str, Any]) -> None:
        """Ask and decide; returns when the request is settled, whoever settled it."""
        approval_id = requested["approval_id"]
        self._console.print()
        self._console.print(
            f"[bold yellow]Allow {escape(plain(requested['tool']))}?[/] {escape(plain(requested['reason']))}"
        )
        self._console.print(plain(_arguments(requested["arguments_json"])), style="cyan", markup=False, highlight=False)
        if not sys.stdin.isatty():
            self._console.print(f"  decide it: proctor approvals allow {approval_id}  (or deny)")
            return
        answer = self._read(requested)
        if answer is None:
            return
        decision: dict[str, Any] = {"decision": "deny"}
        if answer in ("y", "yes", "c", "a"):
            remember = {"c": "conversation", "a": "always"}.get(answer, "once")
            decision = {"decision": "approve", "remember": remember}
        decide(
            self._gateway, self._console, approval_id, decision | {"arguments_digest": requested["arguments_digest"]}
        )

    def _read(self, requested: dict[str, Any]) -> str | None:
        """Return what was typed; None when the deadline passed or another decided meanwhile."""
        deadline = datetime.fromisoformat(requested["deadline"]) if requested.get("deadline") else None
        self._console.print(
            "  [bold]y[/]es · [bold]n[/]o · allow in this [bold]c[/]onversation · [bold]a[/]lways: ", end=""
        )
        while True:
            ready, _, _ = select.select([sys.stdin], [], [], POLL)
            if ready:
                return sys.stdin.readline().strip().lower()[:3]
            if deadline is not None and datetime.now(UTC) >= deadline:
                self._console.print("[dim]too late[/]")
                return None
            if not self._pending(requested["approval_id"]):
                self._console.print("[dim]decided elsewhere[/]")
                return None

    def _pending(self, approval_id: str) -> bool:
        waiting = self._gateway.pages("/v1/approvals", "approvals", {"state": "pending"})
        return any(approval["approval_id"] == approval_id for approval in waiting)


def decide(gateway: Gateway, console: Console, approval_id: str, decision: dict[str, Any]) -> None:
    """Decide an approval and say what became of it; a decision that came too late is told, not raised."""
    try:
        reply = gateway.request("POST", f"/v1/approvals/{approval_id}/decision", json=decision)
    except GatewayError as error:
        if error.reason not in ("APPROVAL_DECIDED", "APPROVAL_EXPIRED"):
            raise
        console.print(f"[yellow]{escape(str(error))}[/]")
        return
    approval = reply["approval"]
    state = str(approval["state"]).removeprefix("APPROVAL_STATE_").lower()
    console.print(f"{state}: {escape(plain(approval['tool']))}", highlight=False)


def _arguments(arguments: Any) -> str:
    """Return arguments as people read them: code as code, the rest as JSON."""
    if isinstance(arguments, dict) and isinstance(arguments.get("code"), str):
        return str(arguments["code"])
    return json.dumps(arguments, ensure_ascii=False, indent=2)

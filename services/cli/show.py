"""How a run looks in a terminal: steps as they come, the answer as it is written, the sources it cites."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.markup import escape

PREVIEW = 160
# Below space all but tab and newline, and the C1 range: what a model or a tool writes must not drive the terminal.
CONTROLS = dict.fromkeys([*(n for n in range(32) if n not in (9, 10)), *range(127, 160)])

# A step's events that are not shown: its text is a note for the answer, and its stages change too often.
_WITHIN_STEPS_UNSEEN = frozenset({"stage_changed", "thinking_delta", "answer_delta", "answer_retracted"})


class RunView:
    """Prints the events of one run. Text of the answer is printed raw, so that nothing in it is markup."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._in_text = ""
        self._titles: dict[str, str] = {}
        self._within = ""

    def show(self, event: dict[str, Any]) -> None:
        """Print one RunEvent. Of a step's own events only what it does: steps write side by side."""
        self._within = self._titles.get(event.get("step_id", ""), "")
        for kind, body in event.items():
            if self._within and kind in _WITHIN_STEPS_UNSEEN:
                continue
            handler = getattr(self, f"_{kind}", None)
            if handler is not None and isinstance(body, dict):
                handler(body)

    def _run_started(self, body: dict[str, Any]) -> None:
        self._step(f"{body['agent_name']} · {body['model']}")

    def _stage_changed(self, body: dict[str, Any]) -> None:
        # The answer shows itself.
        if body["text"] and body["stage"] != "STAGE_ANSWERING":
            self._step(body["text"])

    def _route_decided(self, body: dict[str, Any]) -> None:
        self._step(f"routed: {body['choice']}" if body["choice"] else "not routed")

    def _plan_made(self, body: dict[str, Any]) -> None:
        self._step("plan: " + " · ".join(step["title"] for step in body["steps"]))

    def _step_started(self, body: dict[str, Any]) -> None:
        self._titles[body["step_id"]] = body["title"] or body["step_id"]

    def _step_finished(self, body: dict[str, Any]) -> None:
        title = self._titles.get(body["step_id"], body["step_id"])
        self._within = ""
        self._step(
            f"{title}: {'failed' if body['failed'] else 'done'}"
            + (f" · {_short(body['summary'])}" if body["failed"] else "")
        )

    def _thinking_delta(self, body: dict[str, Any]) -> None:
        self._text("thinking", body["text"], "dim italic")

    def _answer_delta(self, body: dict[str, Any]) -> None:
        self._text("answer", body["text"], "")

    def _answer_retracted(self, body: dict[str, Any]) -> None:
        self._step(f"the text above is withdrawn: {body['reason']}")

    def _tool_call_started(self, body: dict[str, Any]) -> None:
        self._step(f"{body['name']} {_short(body.get('arguments_json'))}")

    def _tool_call_progress(self, body: dict[str, Any]) -> None:
        self._text("output", body["text"], "dim")

    def _tool_call_finished(self, body: dict[str, Any]) -> None:
        status = str(body["status"]).removeprefix("TOOL_STATUS_").lower()
        self._step(f"{body['name']}: {status}" + (f" · {_short(body['preview'])}" if status != "completed" else ""))

    def _artifact_created(self, body: dict[str, Any]) -> None:
        artifact = body["artifact"]
        self._step(f"file {artifact['name']} ({artifact['size']:,} bytes): /v1/artifacts/{artifact['artifact_id']}")

    def _approval_resolved(self, body: dict[str, Any]) -> None:
        resolution = str(body["resolution"]).removeprefix("RESOLUTION_").lower()
        self._step(f"{resolution}{' by ' + body['decided_by'] if body['decided_by'] else ''}")

    def _notice(self, body: dict[str, Any]) -> None:
        self._step(f"note: {body['text']}")

    def _run_completed(self, body: dict[str, Any]) -> None:
        self._break()
        self._citations(body)

    def _run_failed(self, body: dict[str, Any]) -> None:
        self._break()
        self._console.print(f"[bold red]failed[/]: {escape(body['message'])} [dim]({escape(body['reason'])})[/]")

    def _run_cancelled(self, body: dict[str, Any]) -> None:
        self._break()
        self._console.print("[yellow]cancelled[/]")

    def _citations(self, body: dict[str, Any]) -> None:
        cited = [citation for citation in body["citations"] if citation["cited"]]
        for citation in cited:
            evidence = citation["evidence"]
            where = " · ".join(part for part in (evidence.get("title", ""), evidence.get("where", "")) if part)
            self._console.print(f"  [cyan]\\[{evidence['number']}][/] {escape(plain(where))}", highlight=False)
        if not cited:
            self._console.print("  [dim]no sources cited[/]")

    def _step(self, text: str) -> None:
        self._break()
        if self._within:
            text = f"{self._within}: {text}"
        self._console.print(f"[dim]· {escape(plain(text))}[/]", highlight=False)

    def _text(self, kind: str, text: str, style: str) -> None:
        if self._in_text != kind:
            self._break()
            self._in_text = kind
        self._console.print(plain(text), end="", style=style, markup=False, highlight=False, soft_wrap=True)

    def _break(self) -> None:
        if self._in_text:
            self._console.print()
            self._in_text = ""


def plain(text: str) -> str:
    """Return `text` without control characters, line breaks and tabs excepted."""
    return text.translate(CONTROLS)


def _short(value: object) -> str:
    text = " ".join(str(value if value is not None else "").split())
    return text if len(text) <= PREVIEW else f"{text[:PREVIEW]}…"

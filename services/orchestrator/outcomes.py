"""What the model is told of a call: results cleaned and cut to its budget, refusals it can act on."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from services.orchestrator.domain.messages import Evidence, MediaPart, Message, Role, TextPart, ToolCall
from services.orchestrator.evidence import Finding, render

# C0 and C1 controls except tab and newline, lone surrogates, and ANSI escape sequences.
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\ud800-\udfff]")


def clean(text: str) -> str:
    """Return `text` without escape sequences and control characters, line ends as single newlines."""
    return _CONTROL.sub("", _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """A text within its limit, and whether something was left out."""

    text: str
    truncated: bool


def cut(text: str, limit: int) -> Cut:
    """Keep the head (two thirds) and the tail of `text` so that at most `limit` characters remain, the gap marked."""
    if len(text) <= limit:
        return Cut(text=text, truncated=False)
    mark = f"\n[… {len(text) - limit} characters left out …]\n"
    room = max(limit - len(mark), 0)
    head = room * 2 // 3
    tail = room - head
    return Cut(text=text[:head] + mark + (text[-tail:] if tail else ""), truncated=True)


def tool_message(call: ToolCall, text: str, images: Sequence[MediaPart] = ()) -> Message:
    """Return the message that answers `call`."""
    return Message(role=Role.TOOL, parts=(TextPart(text=text), *images), tool_call_id=call.call_id, tool_name=call.name)


def with_evidence(text: str, evidence: Sequence[Evidence]) -> str:
    """Return a tool's text with the evidence it found, numbered."""
    return "\n\n".join(part for part in (text, render(evidence) if evidence else "") if part)


def unnumbered(findings: Sequence[Finding], read: Sequence[Evidence]) -> list[str]:
    """Return in words what was found and got no number: the summary of a document whose passages have theirs."""
    identities = {item.identity for item in read}
    return [
        f"Of '{found.title}' (no number of its own: cite its passages):\n{found.text}"
        for found in findings
        if found.identity not in identities
    ]


def denied(tool: str, comment: str) -> str:
    """Tell the model that a person refused."""
    said = f" They say: {comment}" if comment else ""
    return f"A person refused this call of '{tool}'; it did not run.{said} Do not ask for it again; go on without it."


def forbidden(tool: str, policy: str) -> str:
    """Tell the model that a policy refused."""
    return (
        f"The policy of this agent refuses '{tool}' ({policy}); it did not run and cannot be asked for. "
        "Go on without it."
    )


def expired(tool: str) -> str:
    """Tell the model that nobody decided in time."""
    return (
        f"Nobody decided in time whether '{tool}' may run, which counts as a refusal; it did not run. "
        "Go on without it and tell the user that the approval expired."
    )


def withdrawn(tool: str) -> str:
    """Tell the model that the request was withdrawn."""
    return f"The request to run '{tool}' was withdrawn; it did not run. Go on without it."


def outcome_unknown(tool: str) -> str:
    """Tell the model that a side effect may have happened."""
    return (
        f"'{tool}' had started when the service was interrupted: whether it took effect is unknown, and it was not "
        "repeated. Tell the user so, and how they can check it."
    )


def given_up(tool: str) -> str:
    """Tell that a call ended with the step that made it."""
    return f"'{tool}' was stopped together with the step that called it."


def digest_changed(tool: str) -> str:
    """Tell the model that the approved arguments are not the ones asked for."""
    return f"The arguments of '{tool}' are not the ones that were approved, so it did not run. Ask for it anew."


def edited(tool: str, arguments_json: bytes) -> str:
    """Tell the model what a person changed, before the result."""
    return f"A person changed the arguments of '{tool}' and it ran with: {arguments_json.decode()}"

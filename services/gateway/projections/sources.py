"""Evidence and citations as the OpenAI wires carry them: an extension field, annotations, and markdown footnotes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from proctor.agent.v1 import agent_pb2

# A mark of the answer, as the prompt asks models to write it.
MARK = re.compile(r"\[(\d{1,3})\]")
# The start of a mark that a later delta may complete.
_OPEN_MARK = re.compile(r"\[\d{0,3}$")


def source(citation: agent_pb2.Citation) -> dict[str, Any]:
    """Return one source of an answer."""
    evidence = citation.evidence
    return {
        "number": citation.number,
        "cited": citation.cited,
        "kind": agent_pb2.EvidenceKind.Name(evidence.kind).removeprefix("EVIDENCE_KIND_").lower(),
        "title": evidence.title,
        "where": evidence.where,
        "url": evidence.url,
        "text": evidence.text,
        "source_id": evidence.source_id,
        "document_id": evidence.document_id,
        "passage_id": evidence.passage_id,
    }


def footnotes(citations: Iterable[agent_pb2.Citation]) -> str:
    """Return the cited sources as markdown footnotes, empty when nothing is cited."""
    lines = [f"[^{one.number}]: {_label(one.evidence)}" for one in citations if one.cited]
    return "\n\n" + "\n".join(lines) if lines else ""


def as_footnote_marks(text: str, numbers: frozenset[int]) -> str:
    """Return `text` with `[n]` as `[^n]` for the numbers that exist."""
    return MARK.sub(lambda match: f"[^{match[1]}]" if int(match[1]) in numbers else match[0], text)


def split_open_mark(text: str) -> tuple[str, str]:
    """Return the text that is safe to send, and a tail that may yet become a mark."""
    match = _OPEN_MARK.search(text)
    return (text[: match.start()], text[match.start() :]) if match else (text, "")


def marks(text: str, citations: Iterable[agent_pb2.Citation]) -> list[tuple[int, int, agent_pb2.Evidence]]:
    """Return where the text cites which evidence: start, end, evidence."""
    by_number = {one.number: one.evidence for one in citations}
    return [
        (match.start(), match.end(), by_number[int(match[1])])
        for match in MARK.finditer(text)
        if int(match[1]) in by_number
    ]


def _label(evidence: agent_pb2.Evidence) -> str:
    title = evidence.title or evidence.identity or "source"
    place = f", {evidence.where}" if evidence.where else ""
    return f"[{title}]({evidence.url}){place}" if evidence.url else f"{title}{place}"

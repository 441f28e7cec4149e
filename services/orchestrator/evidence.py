"""One numbering of evidence per run: who gets which number, how the model reads it, which numbers an answer cites."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from services.orchestrator.domain.messages import Citation, Evidence, EvidenceKind
from services.orchestrator.guardrails.framing import DOCUMENTS, DOCUMENTS_END, NOTE, attribute, neutral

# What stands in the place of documents when a search before the first round found none.
NOTHING_FOUND = "The search in the documents found nothing that fits the question."
# How evidence begins wherever a model reads it.
FRAME = NOTE
# A mark like [3] or [1, 2]; not a Markdown link [3](…), an image, or a footnote definition.
_MARK = re.compile(r"\[(\d{1,4}(?:\s*[,，、]\s*\d{1,4})*)\](?![(:])")
_DOCUMENT = re.compile(r'<document number="(\d+)" kind="(\w+)" title="([^"]*)"([^>]*)>\n(.*?)\n</document>', re.DOTALL)
_ATTRIBUTE = re.compile(r'(\w+)="([^"]*)"')


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something a search found, before it has a number."""

    kind: EvidenceKind
    title: str
    text: str
    where: str = ""
    url: str = ""
    score: float = -1.0
    source_id: str = ""
    document_id: str = ""
    passage_id: str = ""

    @property
    def identity(self) -> str:
        """Passage id, else URL, else a hash of source, title and text."""
        if self.passage_id:
            return f"passage:{self.passage_id}"
        if self.url:
            return f"url:{self.url}"
        material = f"{self.source_id}\x00{self.title}\x00{self.text}"
        return f"text:{hashlib.sha256(material.encode()).hexdigest()}"


class EvidencePool:
    """The evidence of one run, in the order in which the model read it."""

    def __init__(self, evidence: Iterable[Evidence] = ()) -> None:
        self._items: list[Evidence] = list(evidence)
        self._by_identity = {item.identity: item for item in self._items}

    def __len__(self) -> int:
        return len(self._items)

    @property
    def items(self) -> tuple[Evidence, ...]:
        """All evidence, by number."""
        return tuple(self._items)

    def add(self, findings: Sequence[Finding]) -> tuple[tuple[Evidence, ...], tuple[Evidence, ...]]:
        """Number `findings`; return (as read now, those that are new).

        The same passage or URL keeps its number. A document's summary is left out when passages of it are in the pool
        or come along.
        """
        with_passages = {item.document_id for item in self._items if item.kind is EvidenceKind.PASSAGE}
        with_passages |= {f.document_id for f in findings if f.kind is EvidenceKind.PASSAGE}
        read: list[Evidence] = []
        new: list[Evidence] = []
        for finding in findings:
            if finding.kind is EvidenceKind.SUMMARY and finding.document_id in with_passages:
                continue
            known = self._by_identity.get(finding.identity)
            if known is None:
                known = self._number(finding)
                new.append(known)
            # The passage may be shown with other paragraphs this time: the number stays, the text read now is today's.
            shown = replace(known, text=finding.text)
            if all(shown.number != other.number for other in read):
                read.append(shown)
        return tuple(read), tuple(new)

    def _number(self, finding: Finding) -> Evidence:
        item = Evidence(
            number=len(self._items) + 1,
            kind=finding.kind,
            title=finding.title,
            text=finding.text,
            identity=finding.identity,
            where=finding.where,
            url=finding.url,
            score=finding.score,
            source_id=finding.source_id,
            document_id=finding.document_id,
            passage_id=finding.passage_id,
        )
        self._items.append(item)
        self._by_identity[item.identity] = item
        return item

    def citations(self, answer: str) -> tuple[tuple[Citation, ...], tuple[int, ...]]:
        """Return (every piece with whether `answer` cites it, cited numbers that do not exist)."""
        cited = cited_numbers(answer)
        known = {item.number for item in self._items}
        citations = tuple(Citation(number=i.number, cited=i.number in cited, evidence=i) for i in self._items)
        return citations, tuple(sorted(cited - known))


def cited_numbers(answer: str) -> set[int]:
    """Return the numbers that `answer` cites; code spans and fences do not count."""
    prose = re.sub(r"```.*?(?:```|\Z)|`[^`\n]*`", "", answer, flags=re.DOTALL)
    return {int(number) for mark in _MARK.findall(prose) for number in re.findall(r"\d+", mark)}


def strip_citations(answer: str) -> str:
    """Remove citation marks, for replaying an old answer whose numbers mean nothing any more."""
    return re.sub(r"[ \t]*" + _MARK.pattern, "", answer)


def render(evidence: Sequence[Evidence]) -> str:
    """Return the one message format in which a model reads evidence; `parse` reads it back."""
    return "\n".join((FRAME, DOCUMENTS, *(_render_one(item) for item in evidence), DOCUMENTS_END))


def _render_one(item: Evidence) -> str:
    attributes = [("number", str(item.number)), ("kind", item.kind.name.lower()), ("title", item.title)]
    attributes += [(name, value) for name, value in (("where", item.where), ("url", item.url)) if value]
    head = " ".join(f'{name}="{attribute(value)}"' for name, value in attributes)
    return f"<document {head}>\n{neutral(item.text)}\n</document>"


@dataclass(frozen=True, slots=True, kw_only=True)
class RenderedDocument:
    """One document as `render` wrote it."""

    number: int
    kind: EvidenceKind
    title: str
    where: str
    text: str


def parse(message: str) -> tuple[RenderedDocument, ...]:
    """Return the documents that stand in `message` in the format of `render`, in order."""
    found = []
    for number, kind, title, rest, text in _DOCUMENT.findall(message):
        attributes = dict(_ATTRIBUTE.findall(rest))
        found.append(
            RenderedDocument(
                number=int(number),
                kind=EvidenceKind[kind.upper()],
                title=html.unescape(title),
                where=html.unescape(attributes.get("where", "")),
                text=text,
            )
        )
    return tuple(found)

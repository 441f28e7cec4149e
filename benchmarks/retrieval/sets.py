"""The question sets: fitz-gov (a package), and the Chinese and mixed sets that stand in data/."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

DATA = Path(__file__).parent / "data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """A question and the paths of the documents that answer it; none for one that nothing answers."""

    text: str
    relevant: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class QuestionSet:
    """Documents by path, and the questions asked of them."""

    name: str
    documents: Mapping[str, str]
    asks: Sequence[Ask]
    # What a model that translates would make of a question.
    translations: Mapping[str, str] = field(default_factory=dict)
    # Documents that repeat another's text word for word, and the one they repeat.
    repeats: Mapping[str, str] = field(default_factory=dict)


def fitz_gov() -> QuestionSet:
    """Return fitz-gov 4.1.0: answerable questions of five kinds, and its abstentions as unanswerable ones."""
    data = files("fitz_gov") / "data"
    documents = {
        f"{one['id']}.md": f"# {one.get('title') or one['id']}\n\n{one['content']}"
        for one in map(json.loads, (data / "corpus" / "documents.jsonl").read_text(encoding="utf-8").splitlines())
    }
    kinds = json.loads((data / "queries" / "query_mappings.json").read_text(encoding="utf-8"))["mappings"]
    asks = []
    for kind, questions in kinds.items():
        for question in questions.values():
            relevant = frozenset(f"{name}.md" for name in question.get("relevant_docs") or ()) & documents.keys()
            # An abstention with a relevant document is a contradiction of the set's own; it is left out.
            if bool(relevant) != (kind == "abstention"):
                asks.append(Ask(text=question["query"], relevant=frozenset(relevant)))
    return QuestionSet(name="fitz-gov", documents=documents, asks=asks, repeats=_repeats(documents))


def _repeats(documents: Mapping[str, str]) -> dict[str, str]:
    """Return each document whose text below its title is that of an earlier one, with the first of them."""
    first: dict[str, str] = {}
    firsts = {
        path: first.setdefault(" ".join(text.split("\n\n", 1)[-1].split()), path) for path, text in documents.items()
    }
    return {path: original for path, original in firsts.items() if path != original}


def handbook_sets() -> tuple[QuestionSet, QuestionSet]:
    """Return the Chinese set (asked in Chinese) and the mixed one (the same facts asked in English, plus unanswerable).

    data/facts.tsv holds one fact a line: document, statement, question in Chinese, question in English. Lines of the
    document `-` are questions that nothing answers.
    """
    statements: dict[str, list[str]] = {}
    chinese, mixed = [], []
    translations: dict[str, str] = {}
    for line in (DATA / "facts.tsv").read_text(encoding="utf-8").splitlines():
        if not line or line.startswith("#"):
            continue
        name, statement, in_chinese, in_english = line.split("\t")
        relevant = frozenset() if name == "-" else frozenset({f"{name}-{_section(statements, name)}.md"})
        if name != "-":
            statements.setdefault(name, []).append(statement)
        translations[in_english] = in_chinese
        chinese.append(Ask(text=in_chinese, relevant=relevant))
        mixed.append(Ask(text=in_english, relevant=relevant))
    documents = {
        f"{name}-{at // SECTION}.md": f"# {name}（{at // SECTION + 1}）\n\n" + "\n\n".join(lines[at : at + SECTION])
        for name, lines in statements.items()
        for at in range(0, len(lines), SECTION)
    }
    return (
        QuestionSet(name="chinese", documents=documents, asks=chinese),
        QuestionSet(name="mixed", documents=documents, asks=mixed, translations=translations),
    )


# Statements in one document of the Chinese set.
SECTION = 3


def _section(statements: Mapping[str, Sequence[str]], name: str) -> int:
    return len(statements.get(name, ())) // SECTION

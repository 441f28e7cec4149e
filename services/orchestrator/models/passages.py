"""Which sentences of the evidence answer a question: word stems in English, character bigrams in Chinese."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import snowballstemmer

from services.orchestrator.evidence import RenderedDocument

_CJK = r"\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\u3040-\u30ff\uac00-\ud7af"
_WORD = re.compile(rf"[{_CJK}]+|[^\W_{_CJK}]+(?:[.,'’-][^\W_{_CJK}]+)*")
_IS_CJK = re.compile(rf"[{_CJK}]")
# A sentence ends at its mark before a space or the end, at a CJK mark, or with its line.
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"“'(\[*]?[A-Z0-9])|(?<=[。！？；])|\n+")
# A line of prose that was wrapped: long, not the row of a table, and the next line begins no list, row or heading.
_WRAP = re.compile(r"^([^|\n]{50,}[^|\n.:!?。])\n(?=[^\s|#>*+-])", re.MULTILINE)
_MARKUP = re.compile(r"^\s*(?:#{1,6}\s+|[-*+]\s+|\d+[.)]\s+|>\s*|\|)+|\|\s*$|\*{1,2}(?=\S)|(?<=\S)\*{1,2}|__|`")
_RANGE = re.compile(r"(\d[\d,]*(?:\.\d+)?)\s*(?:to|and|until|[-–—~～至到])\s*(\d[\d,]*(?:\.\d+)?)")
_NAMED_CELLS = re.compile(r"[^:;]+: [^;]+(?:; [^:;]+: [^;]+)+$")
_RULE = re.compile(r"^[\s|:=*-]+$")
# Words that every question has; they tell nothing about what it asks.
_STOP_WORDS = frozenset(
    # A list of a hundred lines would read worse.
    "a an and any are as at be been by can could did do does for from had has have how i if in into is it its many "  # noqa: SIM905
    "me much must my no not of on one or our per shall should so than that the their them then there these they this "
    "to us was we were what when where which while who whom whose why will with within would you your please tell "
    "give about higher lower more less most least bigger smaller longer shorter cheaper differ difference compare "
    "between".split()
)
_STOP_CHARACTERS = frozenset("的了是吗呢么有在和与及或我你他她它这那哪几什怎吧啊请问差")

# The least share of what the question asks for, by weight, that a sentence with its surroundings must hold. Over the
# handbook of the examples, questions it answers score 0.3 and more, others 0.15 and less.
ENOUGH = 0.28
# Sentences this close to the best one are quoted with it, and those nearly good enough that add what it lacks.
CLOSE = 0.8
NEARLY = 0.7
ADDS = 0.1
MAX_QUOTES = 4
MAX_SENTENCE = 600
# Between the cells of a table row, here and where it is quoted.
CELL = " | "
SHOWN_CELL = " · "


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotation:
    """A sentence that answers, and the number of the document it stands in."""

    text: str
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sentence:
    text: str
    number: int
    terms: frozenset[str]
    around: frozenset[str]


@lru_cache(maxsize=8192)
def _stem(word: str) -> str:
    # A stemmer keeps state while it works, so each call has its own; the cache makes that rare.
    stemmed: str = snowballstemmer.stemmer("english").stemWord(word)
    return stemmed


def is_cjk(text: str) -> bool:
    """Tell whether `text` is written in Chinese, Japanese or Korean, at least in part."""
    return _IS_CJK.search(text) is not None


def terms(text: str) -> frozenset[str]:
    """Return what `text` is about: stems of words, bigrams of CJK runs, without the words that every question has."""
    found: set[str] = set()
    for word in _WORD.findall(text.lower()):
        if not is_cjk(word):
            parts = {word, *word.split("-")} - _STOP_WORDS - {""}
            found.update(_stem(part.replace(",", "")) for part in parts)
            continue
        if len(word) == 1:
            found.add(word)
        pairs = map("".join, pairwise(word))
        found.update(pair for pair in pairs if _STOP_CHARACTERS.isdisjoint(pair))
    return frozenset(found)


def sentences(text: str) -> list[str]:
    """Return the sentences of a passage, markup removed; the cells of a table row stand in one."""
    out = []
    for raw in _SENTENCE_END.split(_WRAP.sub(_unwrapped, text)):
        if not raw or _RULE.match(raw):
            continue
        cleaned = re.sub(r"\s*\|\s*", CELL, _MARKUP.sub("", raw)).strip()
        if cleaned:
            out.append(cleaned if len(cleaned) <= MAX_SENTENCE else cleaned[:MAX_SENTENCE] + "…")
    return out


def _unwrapped(wrap: re.Match[str]) -> str:
    """Join a wrapped line to the next; a row told as `column: cell; column: cell` is a line of its own."""
    return wrap[0] if _NAMED_CELLS.match(wrap[1]) else f"{wrap[1]} "


def quotations(question: str, documents: Sequence[RenderedDocument]) -> tuple[Quotation, ...]:
    """Return the sentences that answer `question`, best first; none when nothing fits."""
    wanted = terms(question)
    pool = [sentence for document in documents for sentence in _sentences_of(document)]
    if not wanted or not pool:
        return ()
    weights = _weights(wanted, pool)
    total = sum(weights.values())
    scores = {position: _score(sentence, weights) / total for position, sentence in enumerate(pool)}
    best = max(scores.values())
    if best < ENOUGH:
        return ()
    chosen: list[_Sentence] = []
    for position in sorted(scores, key=lambda place: (-scores[place], place)):
        sentence = pool[position]
        covered = frozenset().union(*(other.terms for other in chosen))
        new = sum(weights[term] for term in (sentence.terms & wanted) - covered) / total
        told = any(sentence.text == other.text for other in chosen)
        helps = not chosen or new >= ADDS or scores[position] >= best * CLOSE
        if helps and not told and scores[position] >= ENOUGH * NEARLY:
            chosen.append(sentence)
        if len(chosen) == MAX_QUOTES:
            break
    return tuple(Quotation(text=sentence.text, number=sentence.number) for sentence in chosen)


def _sentences_of(document: RenderedDocument) -> list[_Sentence]:
    """Return what of a document may be quoted, each with what it is about though it does not say so itself.

    That is the title, the sentences beside it, and for the cells of a table its first row. Headings and first rows are
    not quoted themselves.
    """
    title = terms(f"{document.title} {document.where}")
    texts = sentences(document.text)
    own = [terms(text) for text in texts]
    header = ""
    pool = []
    for position, text in enumerate(texts):
        is_row = CELL in text
        begins_table = is_row and not header and _names_columns(text)
        header = (text if begins_table else header) if is_row else ""
        if begins_table or len(own[position]) < 2 or _is_heading(text):
            continue
        beside = () if is_row else own[max(0, position - 1) : position + 2]
        around = title.union(terms(header), *beside)
        shown = _labelled(text, header).replace(CELL, SHOWN_CELL) if is_row else text
        pool.append(_Sentence(text=shown, number=document.number, terms=own[position], around=around))
    return pool


def _names_columns(row: str) -> bool:
    """Tell the first row of a table from one of its others, which a passage may begin with: it holds no numbers."""
    return not any(cell[:1].isdigit() for cell in row.split(CELL))


def _labelled(row: str, header: str) -> str:
    """Return the cells of a row, each behind the name of its column where the columns match."""
    cells, labels = row.split(CELL), header.split(CELL)
    if len(cells) != len(labels):
        return row
    return CELL.join(f"{label}: {cell}" if label else cell for label, cell in zip(labels, cells, strict=True))


def _is_heading(text: str) -> bool:
    """Tell a heading, which has no mark at its end, from a sentence; what holds a number is worth quoting anyway."""
    return len(text) < 60 and CELL not in text and text[-1].isalpha() and not any(c.isdigit() for c in text)


def _weights(wanted: frozenset[str], pool: Sequence[_Sentence]) -> dict[str, float]:
    """Return how much each term of the question tells: the rarer in the evidence, the more.

    A term that stands nowhere counts as the rarest, so that a question about something else stays unanswered; but the
    amount that somebody asks about need not stand there, and counts little.
    """
    counts = Counter(term for sentence in pool for term in wanted if _holds(sentence, term))
    weights = {term: math.log(1 + len(pool) / (counts[term] or 0.5)) for term in wanted}
    return {term: weight / 4 if term.isdigit() and not counts[term] else weight for term, weight in weights.items()}


def _holds(sentence: _Sentence, term: str) -> bool:
    """Tell whether a sentence holds a term: the word itself, or an amount within a range that it names."""
    if term in sentence.terms:
        return True
    if not term.isdigit():
        return False
    ranges = ((_amount(low), _amount(high)) for low, high in _RANGE.findall(sentence.text))
    return any(low <= int(term) <= high for low, high in ranges)


def _amount(text: str) -> float:
    """Return an amount in which commas part thousands; one that is none is nothing's bound."""
    try:
        return float(text.replace(",", ""))
    except ValueError:
        return math.nan


def _score(sentence: _Sentence, weights: dict[str, float]) -> float:
    """Return the weight that the sentence holds itself, plus half of what only its surroundings hold."""
    held = sum(weight for term, weight in weights.items() if _holds(sentence, term))
    if not held:
        return 0.0
    near = sum(weight for term, weight in weights.items() if term in sentence.around and term not in sentence.terms)
    return held + near / 2

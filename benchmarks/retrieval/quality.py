"""How well retrieval finds: nDCG@10, recall@5, MRR, and how often it rightly finds nothing.

    python -m benchmarks.retrieval.quality chinese
    python -m benchmarks.retrieval.quality fitz-gov --words      # without vectors: two minutes
    python -m benchmarks.retrieval.quality fitz-gov              # 9,000 chunks are embedded once, then kept
    python -m benchmarks.retrieval.quality fitz-gov --sample 800 # a fixed part of the documents and their questions
    python -m benchmarks.retrieval.quality fitz-gov --folder /tmp/fitz --only default    # in parts: the stores are kept

Each row is a search with one stage or list switched off; the first is the default.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import math
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean

from benchmarks.retrieval.library import CALLER, Bench, Translator, VectorsAlone, bench, local_embedder
from benchmarks.retrieval.sets import Ask, QuestionSet, fitz_gov, handbook_sets
from services.retrieval.domain.search import Question
from services.retrieval.retrieve import HybridRetriever, Mix
from services.retrieval.search import Search, Tuning

KEPT = Path.home() / ".cache" / "proctor" / "benchmark-vectors.sqlite3"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Means over the questions of a set. `lost` is the share of answerable questions that found nothing at all.

    `texts10` is nDCG@10 over texts: documents that repeat one another word for word count as one.
    """

    ndcg10: float
    texts10: float
    recall5: float
    mrr: float
    lost: float
    empty: float

    def __str__(self) -> str:
        return (
            f"nDCG@10 {self.ndcg10:.3f}  by texts {self.texts10:.3f}  recall@5 {self.recall5:.3f}  MRR {self.mrr:.3f}  "
            f"lost {self.lost:.3f}  empty when unanswerable {self.empty:.3f}"
        )


async def measure(
    search: Search, source: str, paths: dict[str, str], asks: Sequence[Ask], repeats: Mapping[str, str] | None = None
) -> Measured:
    """Ask every question and judge the documents found by their first passages."""
    texts = repeats or {}
    found: list[tuple[Ask, list[str]]] = []
    for ask in asks:
        answer = await search.run(CALLER, Question(text=ask.text, sources=(source,), top_k=10))
        found.append((ask, list(dict.fromkeys(paths[hit.document_id] for hit in answer.hits))))
    answerable = [(ask.relevant, ranked) for ask, ranked in found if ask.relevant]
    unanswerable = [ranked for ask, ranked in found if not ask.relevant]
    return Measured(
        ndcg10=fmean(ndcg10(relevant, ranked) for relevant, ranked in answerable),
        texts10=fmean(
            ndcg10(frozenset(texts.get(p, p) for p in relevant), list(dict.fromkeys(texts.get(p, p) for p in ranked)))
            for relevant, ranked in answerable
        ),
        recall5=fmean(len(relevant & set(ranked[:5])) / len(relevant) for relevant, ranked in answerable),
        mrr=fmean(_reciprocal(relevant, ranked) for relevant, ranked in answerable),
        lost=fmean(not ranked for _, ranked in answerable),
        empty=fmean(not ranked for ranked in unanswerable) if unanswerable else math.nan,
    )


def ndcg10(relevant: frozenset[str], ranked: Sequence[str]) -> float:
    """Return how well the first ten of `ranked` place the relevant ones, 1 for the best order."""
    gained = sum(1 / math.log2(at + 2) for at, path in enumerate(ranked[:10]) if path in relevant)
    return gained / sum(1 / math.log2(at + 2) for at in range(min(10, len(relevant))))


def _reciprocal(relevant: frozenset[str], ranked: Sequence[str]) -> float:
    return next((1 / (at + 1) for at, path in enumerate(ranked) if path in relevant), 0.0)


def variants(made: Bench, translations: Mapping[str, str]) -> dict[str, Search]:
    """Return the default search, and one for each thing that can be switched off."""
    words = HybridRetriever(made.index, None, Mix())
    if made.embedder is None:
        return {"words alone": made.search(Tuning(), words), "words, no floor": made.search(Tuning(floor=0), words)}
    hybrid = HybridRetriever(made.index, made.embedder, Mix(), made.anchors)
    translated = {"translated": made.search(Tuning(), rewriter=Translator(translations))} if translations else {}
    return {
        "default": made.search(Tuning()),
        **translated,
        "no keywords": made.search(Tuning(keywords=False)),
        "no floor": made.search(Tuning(floor=0)),
        "vectors alone": made.search(Tuning(), VectorsAlone(hybrid)),
        "words alone": made.search(Tuning(), words, anchors=False),
    }


def sample(questions: QuestionSet, count: int) -> QuestionSet:
    """Return a fixed part of the documents, with the questions whose answers are all in it."""
    order = sorted(questions.documents, key=lambda path: hashlib.sha256(path.encode()).hexdigest())
    kept = frozenset(order[:count])
    asks = [ask for ask in questions.asks if ask.relevant <= kept]
    unanswerable = [ask for ask in asks if not ask.relevant][: count // 4]
    return QuestionSet(
        name=questions.name,
        documents={path: questions.documents[path] for path in questions.documents if path in kept},
        repeats=questions.repeats,
        asks=[ask for ask in asks if ask.relevant] + unanswerable,
    )


async def run(questions: QuestionSet, folder: Path, *, words: bool, only: str = "") -> dict[str, Measured]:
    """Ingest a set, unless the folder holds it already, and measure every variant, or one."""
    KEPT.parent.mkdir(parents=True, exist_ok=True)
    embedder = None if words else local_embedder(KEPT)
    filled = folder / "filled"
    async with bench(folder, embedder) as made:
        if not filled.exists():
            await made.fill(questions.name, questions.documents)
            filled.touch()
        if embedder:
            await made.make_vectors(questions.name)
        paths = await made.paths(questions.name)
        measured = {}
        for name, search in variants(made, questions.translations).items():
            if only in ("", name):
                measured[name] = await measure(search, questions.name, paths, questions.asks, questions.repeats)
                print(f"{questions.name:10} {name:16} {measured[name]}", flush=True)
    if embedder:
        await embedder.close()
    return measured


def main(arguments: Sequence[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("set", choices=["fitz-gov", "chinese", "mixed"])
    parser.add_argument("--words", action="store_true", help="without vectors")
    parser.add_argument("--sample", type=int, default=0, help="only this many documents")
    parser.add_argument("--folder", type=Path, help="keep the stores here, and take them from here the next time")
    parser.add_argument("--only", default="", help="only this row")
    chosen = parser.parse_args(arguments)
    chinese, mixed = handbook_sets()
    sets = {"chinese": chinese, "mixed": mixed}
    questions = sets[chosen.set] if chosen.set in sets else fitz_gov()
    if chosen.sample:
        questions = sample(questions, chosen.sample)
    answerable = sum(1 for ask in questions.asks if ask.relevant)
    print(f"{len(questions.documents)} documents, {answerable} answerable, {len(questions.asks) - answerable} not")
    with tempfile.TemporaryDirectory(prefix="proctor-bench-") as scratch:
        folder = chosen.folder or Path(scratch)
        folder.mkdir(parents=True, exist_ok=True)
        asyncio.run(run(questions, folder, words=chosen.words, only=chosen.only))


if __name__ == "__main__":
    main(sys.argv[1:])

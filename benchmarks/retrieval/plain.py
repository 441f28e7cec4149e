"""Plain BM25 over fitz-gov, by both ways of judging: a yardstick that anybody can lay.

    python -m benchmarks.retrieval.plain

Okapi BM25 (k1 1.2, b 0.75) over lower-case words of title and text, whole documents, nothing else.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from statistics import fmean

from benchmarks.retrieval.quality import ndcg10
from benchmarks.retrieval.sets import fitz_gov

K1, B = 1.2, 0.75
MOST = 60


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text.lower())


class Okapi:
    """An index in memory."""

    def __init__(self, documents: Mapping[str, str]) -> None:
        counted = {path: Counter(words(text)) for path, text in documents.items()}
        mean = fmean(total.total() for total in counted.values())
        self._postings: dict[str, dict[str, float]] = defaultdict(dict)
        for path, counts in counted.items():
            length = 1 - B + B * counts.total() / mean
            for word, count in counts.items():
                self._postings[word][path] = count * (K1 + 1) / (count + K1 * length)
        self._size = len(documents)

    def ranked(self, question: str) -> list[str]:
        """Return the paths of the MOST best documents, best first."""
        scores: defaultdict[str, float] = defaultdict(float)
        for word in words(question):
            found = self._postings.get(word, {})
            rarity = math.log(1 + (self._size - len(found) + 0.5) / (len(found) + 0.5))
            for path, weight in found.items():
                scores[path] += rarity * weight
        return sorted(scores, key=lambda path: scores[path], reverse=True)[:MOST]


def main() -> None:
    questions = fitz_gov()
    # A document without a title has its id in the place of one; that is no word of it.
    documents = {path: text.removeprefix("# " + path.removesuffix(".md")) for path, text in questions.documents.items()}
    index, firsts = Okapi(documents), questions.repeats
    labelled, by_texts = [], []
    for ask in questions.asks:
        if ask.relevant:
            ranked = index.ranked(ask.text)
            labelled.append(ndcg10(ask.relevant, ranked))
            texts = list(dict.fromkeys(firsts.get(path, path) for path in ranked))
            by_texts.append(ndcg10(frozenset(firsts.get(path, path) for path in ask.relevant), texts))
    print(f"{len(labelled)} questions: nDCG@10 {fmean(labelled):.4f} as labelled, {fmean(by_texts):.4f} by texts")


if __name__ == "__main__":
    main()

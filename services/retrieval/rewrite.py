"""Asking again, locally: keywords of a question, topics it names that the hits left out, follow-ups made whole."""

from __future__ import annotations

import re
from collections.abc import Sequence

from services.retrieval.calibrate import rarity
from services.retrieval.domain.library import Topic
from services.retrieval.domain.search import TermCounts
from services.retrieval.ports import Rewritten
from services.retrieval.tokens import ENGLISH_STOPWORDS, fold, terms, units

_WORDS = re.compile(r"[^\W_]+(?:[.'-][^\W_]+)*")
# A follow-up leans on what was said before: it begins by joining or points back.
_FOLLOW_UP = re.compile(
    r"^(and|but|what about|how about|also|then|or)\b|\b(it|its|they|them|that|those|this|these|one|ones|there)\b"
    r"|^(那|那么|还有|另外|如果是|换成|呢)|它|他们|这个|那个|这种|上述|呢[？?]?$",
    re.IGNORECASE,
)
# A question with this many named things stands by itself.
_WHOLE = 6


class LocalRewriter:
    """Implements the port Rewriter without a model: a follow-up gets the words of the turn before it."""

    async def rewrite(self, question: str, history: Sequence[str]) -> Rewritten:
        if not history or len(units(question)) > _WHOLE or not _FOLLOW_UP.search(question.strip()):
            return Rewritten(text=question)
        return Rewritten(text=f"{history[-1].strip()}\n{question}")


def keywords(question: str, counts: TermCounts, limit: int) -> str:
    """Return the question's rarest words that the sources hold, in their order; empty when it names none they hold."""
    kept = []
    for word in _WORDS.findall(question):
        named = units(word)
        known = [min(rarity(term, counts) for term in unit) for unit in named if _known(unit, counts)]
        if known and fold(word) not in ENGLISH_STOPWORDS:
            kept.append((max(known), word))
    rarest = sorted(range(len(kept)), key=lambda at: -kept[at][0])[:limit]
    return " ".join(kept[at][1] for at in sorted(rarest))


def _known(unit: Sequence[str], counts: TermCounts) -> bool:
    return any(counts.holding.get(term) for term in unit)


def topics_left_out(question: str, vocabulary: Sequence[Topic], shown: Sequence[str]) -> list[str]:
    """Return, when the question names several topics, a query for each that no shown text speaks of."""
    asked = f" {' '.join(terms(question))} "
    named = [topic for topic in vocabulary if any(_within(word, asked) for word in (topic.name, *topic.synonyms))]
    if len(named) < 2:
        return []
    texts = [f" {' '.join(terms(text))} " for text in shown]
    return [
        " ".join((topic.name, *topic.synonyms))
        for topic in named
        if not any(_within(word, text) for word in (topic.name, *topic.synonyms) for text in texts)
    ]


def _within(word: str, padded: str) -> bool:
    return f" {' '.join(terms(word))} " in padded

"""More tools than a model takes: the relevant ones are offered, never simply the first."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Collection, Sequence

from services.orchestrator.domain.messages import ToolSpec

_WORD = re.compile(r"[a-z]+|[0-9]+|[\u3040-\u30ff\u3400-\u9fff]+")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
# A word of the tool's name tells more than one of its description.
_NAME_WEIGHT = 3.0


def narrow(
    tools: Sequence[ToolSpec], question: str, limit: int, always: Collection[str] = ()
) -> tuple[tuple[ToolSpec, ...], tuple[str, ...]]:
    """Return (at most `limit` tools in their order, names of those left out).

    Tools in `always` stay; the others are ranked by the words that question, name and description share, rare words
    counting more.
    """
    if len(tools) <= limit:
        return tuple(tools), ()
    wanted = words(question)
    names = [words(tool.name) for tool in tools]
    texts = [words(tool.description) for tool in tools]
    seen_in = Counter(word for name, text in zip(names, texts, strict=True) for word in name | text)
    rarity = {word: math.log(1 + len(tools) / count) for word, count in seen_in.items()}

    def relevance(index: int) -> float:
        in_name = sum(rarity[word] for word in wanted & names[index])
        in_text = sum(rarity[word] for word in wanted & texts[index])
        return _NAME_WEIGHT * in_name + in_text

    fixed = [i for i, tool in enumerate(tools) if tool.name in always]
    others = sorted((i for i in range(len(tools)) if i not in fixed), key=lambda i: (-relevance(i), i))
    chosen = set(fixed) | set(others[: max(limit - len(fixed), 0)])
    kept = tuple(tool for i, tool in enumerate(tools) if i in chosen)
    return kept, tuple(tool.name for i, tool in enumerate(tools) if i not in chosen)


def words(text: str) -> set[str]:
    """Return words without their plural's s, and bigrams of CJK runs."""
    found_words: set[str] = set()
    for found in _WORD.findall(_CAMEL.sub(" ", text).lower()):
        if found[0] >= "\u3040":
            found_words |= {found[i : i + 2] for i in range(max(len(found) - 1, 1))}
        else:
            found_words.add(found.removesuffix("s") if len(found) > 3 else found)
    return found_words

"""Words as the index knows them: stemmed words of alphabetic scripts, overlapping bigrams of CJK text.

The index column holds these terms separated by spaces and is split at spaces only, because the store's own tokenizers
find next to nothing in Chinese.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import pairwise

import snowballstemmer

MAX_TERM = 40

_CJK = "\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003134f"
_PIECE = re.compile(rf"(?P<cjk>[{_CJK}]+)|(?P<word>[^\W_{_CJK}]+(?:[.,][0-9]+(?![^\W\d_]))*)")
_ASCII_LETTERS = re.compile(r"[a-z]+\Z")
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")

_ENGLISH = """
    a about above after again all also am an and any are as at be because been before being below between both but
    by can could did do does doing down during each few for from further get gets give got had has have having he
    her here hers him his how i if in into is it its itself just let like many may me might more most much must my
    no nor not now of off on once only or other our out over own per please same shall she should so some such tell
    than that the their them then there these they this those through to too under until up us very was we were
    what when where which while who whom whose why will with within would yes you your
"""
ENGLISH_STOPWORDS = frozenset(_ENGLISH.split())
# Phrases that ask or join rather than name. Questions are cut at them.
_CHINESE = """
    请告诉我 有没有 是不是 能不能 可不可以 为什么 怎么样 是多少 有多少 什么时候 哪一个 请问 什么 怎么 怎样 如何
    多少 几个 哪些 哪个 哪里 哪种 是否 可以 需要 应该 应当 我们 你们 他们 这个 那个 这些 那些 关于 以及 或者 如果
    因为 所以 但是 并且 的 了 吗 呢 吧 啊
"""
CHINESE_FUNCTION_PHRASES = tuple(_CHINESE.split())
# Characters that, standing between words, carry no subject. They are also parts of words (有 in 有效), so questions
# are not cut at them; they only count for nothing when no neighbour makes them part of a term that was found.
CHINESE_FUNCTION_CHARACTERS = frozenset(
    "是在和与及或我你您他她它就都也把被会能要有几谁哪该请对为从到于之将让给去来后前时里中上下个做用"
)
_FUNCTION = re.compile("|".join(sorted(map(re.escape, CHINESE_FUNCTION_PHRASES), key=len, reverse=True)))


def fold(text: str) -> str:
    """Return the text in one form: compatibility forms unified, accents dropped, lower case."""
    if text.isascii():
        return text.lower()
    decomposed = unicodedata.normalize("NFKD", text)
    bare = "".join(c for c in decomposed if not unicodedata.combining(c) or "\u3099" <= c <= "\u309a")
    return unicodedata.normalize("NFC", bare).lower()


def terms(text: str) -> list[str]:
    """Return the terms of a text in order, repeats kept, each at most MAX_TERM characters."""
    found: list[str] = []
    for piece in _PIECE.finditer(fold(_split_identifiers(text))):
        run = piece["cjk"]
        if run:
            found.extend(_bigrams(run))
        else:
            found.append(_stem(piece["word"])[:MAX_TERM])
    return found


def index_text(text: str, context: str = "") -> str:
    """Return what the index column holds for a chunk whose place (title, headings) is `context`."""
    return " ".join(terms(f"{context}\n{text}"))


def query_terms(text: str) -> list[str]:
    """Return the distinct terms of a question that name something; all of them when none would be left."""
    found = _distinct(term for unit in units(text, functions=True) for term in unit)
    return found or _distinct(terms(text))


def units(text: str, *, functions: bool = False) -> list[tuple[str, ...]]:
    """Return what a question names, each as the terms of which one is enough to cover it.

    A word is covered by its stem; a CJK character by either bigram it is part of, so bigrams that straddle two words
    cost nothing. Function words are left out; CJK function characters too, unless `functions`.
    """
    found: list[tuple[str, ...]] = []
    for piece in _PIECE.finditer(fold(_split_identifiers(text))):
        if piece["cjk"]:
            for part in _FUNCTION.split(piece["cjk"]):
                pairs = _bigrams(part) if len(part) > 1 else []
                found.extend(
                    tuple(dict.fromkeys(pairs[max(at - 1, 0) : at + 1]))
                    for at, character in enumerate(part)
                    if pairs and (functions or character not in CHINESE_FUNCTION_CHARACTERS)
                )
        elif piece["word"] not in ENGLISH_STOPWORDS:
            found.append((_stem(piece["word"])[:MAX_TERM],))
    return found


def is_cjk(text: str) -> bool:
    """Return whether the text is mainly written without spaces between words."""
    if text.isascii():
        return False
    cjk = sum(1 for c in text if _is_cjk_character(c))
    words = len(re.findall(r"[A-Za-z]+", text))
    return cjk > 2 * words


def bigrams(text: str) -> set[str]:
    """Return the character bigrams of the text's letters and digits, which work alike in every script."""
    letters = [c for c in fold(text) if c.isalnum()]
    return {a + b for a, b in pairwise(letters)}


def _split_identifiers(text: str) -> str:
    """Give camelCase words their parts as well, so that code is found by either."""
    if not any(c.isupper() for c in text):
        return text
    return _CAMEL.sub(" ", text)


def _bigrams(run: str) -> list[str]:
    if len(run) == 1:
        return [run]
    return [run[i : i + 2] for i in range(len(run) - 1)]


def _distinct(found: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(found))


def _is_cjk_character(c: str) -> bool:
    return "\u3040" <= c <= "\u30ff" or "\u3400" <= c <= "\u9fff" or "\uac00" <= c <= "\ud7af" or c >= "\U00020000"


# Stemming is pure and the same words come again and again: without the cache it is most of the cost of indexing.
@lru_cache(maxsize=100_000)
def _stem(word: str) -> str:
    if not _ASCII_LETTERS.match(word):
        return word
    return _stemmer()(word)


# A stemmer keeps the word that it works on: threads that share one would cut each other's.
_of_thread = threading.local()


def _stemmer() -> Callable[[str], str]:
    """Return the stemmer of this thread."""
    stem: Callable[[str], str] | None = getattr(_of_thread, "stem", None)
    if stem is None:
        stem = _of_thread.stem = snowballstemmer.stemmer("english").stemWord
    return stem


def overlap(question: set[str], text: str) -> float:
    """Return the share of the question's bigrams that the text holds."""
    return len(question & bigrams(text)) / len(question) if question else 0.0


def join(found: Sequence[str]) -> str:
    """Return terms as the index column holds them."""
    return " ".join(found)

"""Words are stemmed in many threads at once: documents that come in side by side, and searches beside them."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.retrieval.tokens import _stem

ENDINGS = ("ational", "fulness", "iveness", "ization", "ing", "ed", "ically", "ement", "ousness", "ly")
WORDS = [
    f"{stem}{ending}" for stem in ("relat", "hope", "decis", "organ", "vile", "form", "adopt") for ending in ENDINGS
]


@pytest.fixture
def quick_switches() -> Iterator[None]:
    """Have threads change as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("quick_switches")
def test_threads_do_not_cut_each_others_words() -> None:
    stem = _stem.__wrapped__  # without its memory
    expected = [stem(word) for word in WORDS]
    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(lambda _: [stem(word) for word in WORDS], range(200)):
            assert found == expected

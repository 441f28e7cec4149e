"""Portions are what a document was always stored as, however they are come by."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from services.retrieval.chunk import Cutting, cut
from services.retrieval.domain.text import Block, BlockKind, Parsed
from services.retrieval.portions import PARCEL_CHARACTERS, PARCEL_TERMS, Parcel, Portion, head_of, parcels
from services.retrieval.tokens import index_text, terms

SIZES = Cutting(parent_max=400, parent_min=350, heading_min=180, child_min=40, child_max=60)


def plainly(blocks: Sequence[Block], title: str, stem: str, sizes: Cutting) -> tuple[list[Portion], Counter[str]]:
    """Return portions and terms by their definition, each found by itself."""
    found: list[Portion] = []
    counts: Counter[str] = Counter()
    for parent in cut(blocks, sizes):
        tokens = [
            index_text(parent.text[span.start : span.end], f"{title}\n{stem}\n{span.heading}") for span in parent.spans
        ]
        found.append(Portion(text=parent.text, start=parent.start, spans=parent.spans, tokens=tuple(tokens)))
        counts.update(set(terms(parent.text)))
    return found, counts


def made(blocks: Sequence[Block], title: str, path: str, sizes: Cutting) -> tuple[list[Portion], dict[str, int]]:
    parsed = Parsed(media_type="text/plain", title=title, blocks=iter(()))
    found: list[Portion] = []
    counts: dict[str, int] = {}
    for parcel in parcels(blocks, head_of(parsed, path), path, sizes):
        found.extend(parcel.portions)
        assert not counts.keys() & parcel.terms.keys()
        counts.update(parcel.terms)
    return found, counts


# What may join over an edge: words without spaces, parts of numbers, marks that belong to a letter, two small sigmas.
WORDS = st.text(st.sampled_from(list("aB3٣.,!。；？ \n\t\u3000か゛\u3099é\u0301ﷺ㍿Σσ文本－_x１．")), max_size=160)
BLOCKS = st.lists(
    st.builds(Block, text=WORDS, kind=st.sampled_from(BlockKind), level=st.integers(1, 3), page=st.integers(0, 3)),
    max_size=12,
)


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(BLOCKS, WORDS)
def test_portions_have_the_words_of_their_definition(blocks: list[Block], title: str) -> None:
    expected = plainly(blocks, title.strip() or "some file", "some file", SIZES)

    assert made(blocks, title, "a/some file.txt", SIZES) == expected


def test_parcels_are_small_and_terms_come_behind_all_portions() -> None:
    blocks = [Block(text=f"Word{n} stands here. " * 40) for n in range(3 * PARCEL_TERMS)]
    parsed = Parsed(media_type="text/plain", title="", blocks=iter(()))

    found = list(parcels(blocks, head_of(parsed, "a.txt"), "a.txt", Cutting()))
    portions = [parcel for parcel in found if parcel.portions]

    assert found[: len(portions)] == portions
    assert all(_weight(parcel) < 2 * PARCEL_CHARACTERS for parcel in portions)
    assert len(portions) > 10
    assert {len(parcel.terms) for parcel in found[len(portions) : -1]} == {PARCEL_TERMS}


def test_only_what_is_asked_for_is_cut() -> None:
    read = 0

    def blocks() -> Iterator[Block]:
        nonlocal read
        for _ in range(10_000):
            read += 1
            yield Block(text="One more sentence of it. " * 100)

    parsed = Parsed(media_type="text/plain", title="", blocks=iter(()))
    next(parcels(blocks(), head_of(parsed, "a.txt"), "a.txt", Cutting()))

    assert read < 100


def test_no_text_makes_no_parcel() -> None:
    assert made([Block(text=" \n ")], "", "a.txt", SIZES) == ([], {})


def _weight(parcel: Parcel) -> int:
    return sum(len(one.text) + sum(map(len, one.tokens)) for one in parcel.portions)

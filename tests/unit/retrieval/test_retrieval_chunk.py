"""Cutting into passages and children."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from services.retrieval.chunk import Cutting, Parent, cut
from services.retrieval.domain.text import Block, BlockKind

SIZES = Cutting()
SENTENCE = "The quick brown fox jumps over the lazy dog and runs away. "


def heading(text: str, level: int = 2) -> Block:
    return Block(text=text, kind=BlockKind.HEADING, level=level)


def children(parent: Parent) -> list[str]:
    return [parent.text[span.start : span.end] for span in parent.spans]


def test_a_short_document_is_one_passage_with_a_child_for_each_section() -> None:
    blocks = [heading("Guide", 1), Block(text=SENTENCE * 3), heading("Hotels"), Block(text=SENTENCE * 4)]

    (parent,) = cut(blocks, SIZES)

    assert parent.text.startswith("# Guide\n\nThe quick")
    assert [span.heading for span in parent.spans] == ["Guide", "Guide > Hotels"]
    assert children(parent)[1].startswith("## Hotels\n\nThe quick")


def test_passages_are_near_their_size_and_cut_between_sentences() -> None:
    parents = list(cut([Block(text=SENTENCE * 300)], SIZES))

    assert all(3400 <= len(parent.text) <= 4000 for parent in parents[:-1])
    assert all(parent.text.endswith("away.") for parent in parents)


def test_a_main_heading_ends_a_passage_that_is_long_enough() -> None:
    parents = list(cut([Block(text=SENTENCE * 40), heading("Next"), Block(text=SENTENCE)], SIZES))

    assert [parent.text[:7] for parent in parents] == ["The qui", "## Next"]


def test_a_heading_never_ends_a_passage() -> None:
    blocks = [Block(text=SENTENCE * 66), heading("Deep", 4), Block(text=SENTENCE * 20)]

    parents = list(cut(blocks, SIZES))

    assert not parents[0].text.endswith("Deep")
    assert parents[1].text.startswith("#### Deep")


def test_chinese_is_cut_after_its_full_stops() -> None:
    (parent,) = cut([Block(text="员工出差的住宿费标准为每晚六百元。" * 60)], SIZES)

    assert len(parent.spans) > 1
    assert all(child.endswith("。") and 400 <= len(child) <= 600 for child in children(parent)[:-1])


def test_rows_stay_whole_and_pages_are_kept() -> None:
    rows = [Block(text=f"City: C{n}; Limit: {n}", kind=BlockKind.ROW, page=1 + n // 50) for n in range(100)]

    (parent,) = cut(rows, SIZES)

    assert parent.text.count("\n") == 99
    assert parent.spans[-1].page == 2
    assert all(child.startswith("City: ") for child in children(parent))


def test_text_without_any_break_is_cut_all_the_same() -> None:
    parents = list(cut([Block(text="x" * 10_000)], SIZES))

    assert sum(len(parent.text.replace("\n", "")) for parent in parents) == 10_000
    assert max(len(parent.text) for parent in parents) <= 4000


texts = st.text(alphabet="ab 。.\n中文é", max_size=900)
blocks_of_text = st.lists(
    st.builds(
        Block,
        text=texts,
        kind=st.sampled_from(list(BlockKind)),
        level=st.integers(1, 6),
        page=st.integers(0, 3),
    ),
    max_size=30,
)


@settings(max_examples=60, deadline=None)
@given(blocks_of_text)
def test_no_text_is_lost_and_children_tile_their_passage(blocks: list[Block]) -> None:
    sizes = Cutting(parent_max=800, parent_min=700, heading_min=360, child_min=80, child_max=120)
    parents = list(cut(blocks, sizes))

    def bare(text: str) -> str:
        return "".join(text.split())

    expected = "".join(bare(b.text)[:100] if b.kind is BlockKind.HEADING else bare(b.text) for b in blocks)
    found = "".join(bare(parent.text) for parent in parents).replace("#", "")
    assert found.startswith(expected[:50]) or any(b.kind is BlockKind.HEADING for b in blocks)
    start = -1
    for parent in parents:
        assert len(parent.text) <= sizes.parent_max
        assert parent.start > start
        start = parent.start
        assert bare("".join(children(parent))) == bare(parent.text)
        assert all(a.end <= b.start for a, b in zip(parent.spans, parent.spans[1:], strict=False))

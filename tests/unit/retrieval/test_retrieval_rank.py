"""Fusing, merging, collapsing, spreading; excerpts; rewriting; calibrated scores."""

from __future__ import annotations

import pytest

from services.retrieval.calibrate import Anchors, Calibration, Pairing, Scale
from services.retrieval.domain.library import Passage, Span, Topic
from services.retrieval.domain.search import Candidate, Located, Match, Stage, TermCounts
from services.retrieval.excerpt import excerpt
from services.retrieval.rank import Scored, collapse, diversify, fuse, merge
from services.retrieval.rewrite import LocalRewriter, keywords, topics_left_out


def match(name: str, score: float = 1.0) -> Match:
    return Match(chunk_id=name, passage_id=name, index=0, score=score)


def scored(passage: str, score: float | None, *, index: int = 0, text: str = "text") -> Scored:
    span = Span(start=0, end=len(text))
    where = Passage(
        id=passage,
        tenant="t",
        source_id="s",
        document_id="d",
        revision="r",
        ordinal=0,
        text=text,
        start=0,
        spans=(span, span),
    )
    return Scored(
        candidate=Candidate(chunk_id=f"{passage}-{index}", passage_id=passage, index=index),
        located=Located(passage=where, title="", path="", url=""),
        score=score,
        stage=Stage.QUESTION,
    )


def test_what_both_lists_name_comes_first_and_keeps_both_ranks() -> None:
    fused = fuse([match("a"), match("b")], [match("b", 0.9), match("c", 0.8)], vector_weight=0.5)

    assert [(one.chunk_id, one.lexical_rank, one.vector_rank) for one in fused] == [
        ("b", 2, 1),
        ("a", 1, 0),
        ("c", 0, 2),
    ]
    assert fused[0].cosine == 0.9
    assert fused[1].cosine is None


def test_merging_keeps_the_higher_score_of_a_chunk() -> None:
    merged = merge([[scored("a", 0.4), scored("b", 0.6)], [scored("a", 0.8)]])

    assert [(hit.candidate.passage_id, hit.score) for hit in merged] == [("a", 0.8), ("b", 0.6)]


def test_a_hit_without_a_score_stands_between_floor_and_enough() -> None:
    merged = merge([[scored("low", 0.31), scored("none", None), scored("high", 0.6)]])

    assert [hit.candidate.passage_id for hit in merged] == ["high", "none", "low"]


def test_children_collapse_to_their_best() -> None:
    assert [hit.score for hit in collapse([scored("a", 0.9), scored("a", 0.5, index=1), scored("b", 0.4)])] == [
        0.9,
        0.4,
    ]


def test_diversity_prefers_what_says_something_else() -> None:
    hits = [
        scored("a", 0.9, text="hotel limits"),
        scored("b", 0.8, text="hotel limits"),
        scored("c", 0.7, text="trains"),
    ]

    assert [h.candidate.passage_id for h in diversify(hits, 2, 0.0)] == ["a", "b"]
    assert [h.candidate.passage_id for h in diversify(hits, 2, 0.5)] == ["a", "c"]


def test_an_answer_in_the_last_third_of_a_passage_is_shown() -> None:
    filler = "Nothing of interest stands in this paragraph about gardening.\n\n"
    answer = "The mileage rate is 38 cents."
    text = filler * 55 + answer + "\n\n" + filler * 3
    span = Span(start=text.index(answer), end=text.index(answer) + len(answer))

    shown = excerpt(text, span, "What is the mileage rate?", 2000)

    assert answer in shown.text
    assert len(shown.text) <= 2000


def test_paragraphs_that_share_most_with_the_question_are_shown_though_another_child_was_found() -> None:
    filler = "Nothing of interest stands in this paragraph about gardening.\n\n"
    text = "Cars.\n\n" + filler * 55 + "里程补贴标准为每公里三角八分。"

    shown = excerpt(text, Span(start=0, end=5), "里程补贴标准是多少", 500)

    assert shown.text.startswith("Cars.")
    assert shown.text.endswith("里程补贴标准为每公里三角八分。")
    assert "…" in shown.text


def test_a_passage_of_one_paragraph_is_cut_around_the_child() -> None:
    text = "x" * 3000 + "answer" + "y" * 3000

    shown = excerpt(text, Span(start=3000, end=3006), "q", 1000)

    assert "answer" in shown.text
    assert text[shown.start : shown.end] == shown.text


COUNTS = TermCounts(passages=1000, holding={"hotel": 20, "polici": 800, "limit": 100})


def test_a_rare_word_that_is_missing_weighs_more_than_a_common_one_that_is_there() -> None:
    calibration = Calibration("parental leave policy", COUNTS, None)

    assert calibration.coverage("The travel policy") < 0.1
    assert Calibration("hotel limit", COUNTS, None).coverage("Hotels have limits") == 1.0


def anchors(scale: Scale) -> Anchors:
    pairing = Pairing(questions=(0.0, 0.0), passages=(0.0, 0.0), scale=Scale(unrelated=-0.1, related=0.2))
    return Anchors(english=scale, chinese=scale, english_asks_chinese=pairing, chinese_asks_english=pairing)


@pytest.mark.parametrize(
    "scale",
    [Scale(unrelated=0.76, related=0.87), Scale(unrelated=0.05, related=0.55), Scale(unrelated=-0.6, related=-0.1)],
    ids=["e5", "openai", "distances above one"],
)
def test_scores_mean_the_same_whatever_an_embedder_calls_near(scale: Scale) -> None:
    calibration = Calibration("hotel limit", COUNTS, anchors(scale))

    assert calibration.score("Hotels have limits of 200 euro", scale.related, None) > 0.5
    assert calibration.score("Gardens need water", scale.unrelated, None) < 0.3
    assert calibration.score("花园每天都需要浇水施肥", scale.unrelated, -0.1) < 0.3


def test_a_passage_in_the_other_language_scores_by_closeness_alone() -> None:
    calibration = Calibration("hotel limit", COUNTS, anchors(Scale(unrelated=0.76, related=0.87)))

    assert calibration.score("酒店住宿费的上限标准", 0.80, 0.4) > 0.5
    assert calibration.score("酒店住宿费的上限标准", 0.99, 0.1) < 0.3
    assert calibration.score("酒店住宿费的上限标准", None, None) < 0.3


def test_centres_take_away_what_a_whole_language_shares() -> None:
    pairing = Pairing(questions=(1.0, 0.0), passages=(0.0, 1.0), scale=Scale(unrelated=0, related=1))

    assert pairing.cosines((1.0, 0.5), [(0.0, 1.5), (0.5, 1.0)]) == pytest.approx([1.0, 0.0])
    assert pairing.cosines((1.0, 0.0), [(0.5, 1.0)]) == [0.0]


def test_words_alone_give_a_score_while_vectors_lag() -> None:
    assert Calibration("hotel limit", COUNTS, None).score("Hotels have limits", None, None) > 0.5
    assert Calibration("hotel limit", COUNTS, None).score("Gardens need water", None, None) < 0.3


def test_keywords_are_the_rarest_words_that_the_sources_hold() -> None:
    assert keywords("Could you tell me which hotel limit policy we have?", COUNTS, 2) == "hotel limit"
    assert keywords("parental leave", COUNTS, 8) == ""


def test_topics_that_no_hit_speaks_of_are_asked_for() -> None:
    vocabulary = [Topic(name="hotel", synonyms=("accommodation",)), Topic(name="per diem"), Topic(name="车票")]

    assert topics_left_out("hotels and per diem", vocabulary, ["Hotels cost 200."]) == ["per diem"]
    assert topics_left_out("hotels and per diem", vocabulary, ["accommodation", "The per diem is 56."]) == []
    assert topics_left_out("hotels", vocabulary, []) == []


async def test_a_follow_up_gets_the_turn_before_and_a_whole_question_does_not() -> None:
    rewriter = LocalRewriter()
    history = ["What is the hotel limit in Oslo?"]

    assert (
        await rewriter.rewrite("And in London?", history)
    ).text == "What is the hotel limit in Oslo?\nAnd in London?"
    assert (await rewriter.rewrite("那伦敦呢?", ["奥斯陆的住宿标准"])).text == "奥斯陆的住宿标准\n那伦敦呢?"
    assert (await rewriter.rewrite("Who signs purchase orders?", history)).text == "Who signs purchase orders?"
    assert (await rewriter.rewrite("And in London?", [])).text == "And in London?"

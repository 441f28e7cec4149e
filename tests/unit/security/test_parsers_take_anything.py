"""Whatever a model, a file, foreign code or a caller writes: every parser returns or refuses, and never breaks.

Each target takes anything and may only raise what its callers expect, which it swallows. `make test` tries a few inputs
that never change; `make prove` looks for new ones.
"""

from __future__ import annotations

import base64
import io
import json
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from services.approval.errors import LinkInvalid
from services.approval.links import LinkSigner
from services.chassis.clock import SystemClock
from services.chassis.errors import ServiceError
from services.chassis.identity import IdentityVerifier
from services.chassis.paging import decode_token
from services.gateway import keys, pauses
from services.gateway.bodies.responses import parse_response_id
from services.orchestrator import evidence
from services.orchestrator.checks import ArgumentsRefused, check_schema, validate_arguments
from services.orchestrator.continuation import ContinuationCorrupt, ContinuationTooNew
from services.orchestrator.continuation import decode as decode_continuation
from services.orchestrator.models.chat_chunks import ChatChunks
from services.orchestrator.models.fragments import finished_call
from services.orchestrator.models.openai_model import _decode as decode_batch
from services.orchestrator.models.prompted_calls import CallFilter, read_calls
from services.orchestrator.models.reply import ReplyBuilder
from services.orchestrator.models.structured import read_value
from services.orchestrator.models.think import ThinkSplitter
from services.retrieval.adapters.parsers.exchange import (
    CutJob,
    Intake,
    Nonsense,
    pack_job,
    unpack_head,
    unpack_links,
    unpack_sizes,
    unpack_text,
)
from services.retrieval.adapters.parsers.worker import answers
from services.retrieval.chunk import Cutting
from services.retrieval.domain.errors import UnreadableFile
from services.sandbox.inside import frames
from tests.support import retrieval_files
from tests.support.fake_backends import gateway_suite
from tests.support.hostile import BYTES, HOSTILE, TEXTS, WRONG, shaped, taking_anything
from tests.support.platform import KEY
from tests.support.upstream_models import SEARCH

SCHEMA = SEARCH.parameters_json
CHILD = st.lists(st.integers(-1, 9) | st.text(max_size=3) | WRONG, min_size=4, max_size=6)
PORTION = st.tuples(
    st.integers(-1, 9) | WRONG, st.text(max_size=9) | WRONG, st.lists(CHILD | WRONG, max_size=2) | WRONG
)
PARCEL = shaped(
    {
        "portions": st.lists(PORTION | WRONG, max_size=2),
        "terms": st.dictionaries(st.text(max_size=3), st.integers(-1, 3) | WRONG, max_size=3),
        "reason": st.text(max_size=3),
        "message": st.text(max_size=3),
    }
)
PARCELS = PARCEL.map(lambda parcel: json.dumps(parcel).encode())


def base64url(data: bytes) -> str:
    """Return bytes as tokens carry them."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def arguments(data: bytes) -> None:
    # Only what parses becomes `arguments_json`; the rest stays text, and is refused.
    call = finished_call("c1", "search", data.decode("utf-8", "replace"), {})
    if call.arguments_json:
        with suppress(ArgumentsRefused):
            validate_arguments(call.arguments_json, SCHEMA)


def schema(data: bytes) -> None:
    assert isinstance(check_schema(data), str)


def chat_chunk(data: bytes) -> None:
    reply = ReplyBuilder("m1", 1, {})
    decode_batch([data], ChatChunks(reply))
    reply.close()
    list(reply.take())
    assert all(isinstance(call.arguments_json, bytes) for call in reply.calls())


def structured(text: str) -> None:
    with suppress(ValueError):
        read_value(text)


def prompted(text: str) -> None:
    shown = CallFilter(active=True)
    shown.feed(text)
    calls = read_calls(text, (SEARCH,), "m1", 1, {})
    assert all(call.call_id for call in calls)


def thinking(text: str) -> None:
    splitter = ThinkSplitter()
    splitter.feed(text)
    splitter.finish()


def citations(text: str) -> None:
    assert all(number >= 0 for number in evidence.cited_numbers(text))
    evidence.strip_citations(text)
    evidence.parse(text)


def frame(data: bytes) -> None:
    found = frames._decode(data)
    assert found is None or isinstance(found.header, dict)


def page_token(text: str) -> None:
    with suppress(ServiceError):
        decode_token("runs", text)


def identity(text: str) -> None:
    with suppress(ServiceError):
        IdentityVerifier(KEY, SystemClock()).verify(text)


def link(text: str) -> None:
    with suppress(LinkInvalid):
        LinkSigner("s" * 32).read(text)


def credential(text: str) -> None:
    keys.parse_credential(text)
    keys.parse_credential(f"pk-{text}")


def pause_answer(text: str) -> None:
    pauses.parse(text)
    parse_response_id(text)
    for kind in ("approval", "questions", "continue", "client_tool"):
        with suppress(ServiceError, UnicodeEncodeError):
            pauses.decision(pauses.PauseId(kind=kind, run_id="r", call_id="c"), text)


def continuation(data: bytes) -> None:
    with suppress(ContinuationCorrupt, ContinuationTooNew):
        decode_continuation(data, {})


def parsing_process(data: bytes) -> None:
    for read in (unpack_head, unpack_text, unpack_sizes, unpack_links, Intake(1000).take):
        with suppress(Nonsense, UnreadableFile):
            read(data)


TARGETS: dict[str, tuple[st.SearchStrategy[Any], Callable[[Any], None]]] = {
    "arguments of a call": (BYTES, arguments),
    "schema of a tool": (BYTES, schema),
    "chunk of a stream": (BYTES, chat_chunk),
    "structured answer": (TEXTS, structured),
    "calls in text": (TEXTS, prompted),
    "thinking in text": (TEXTS, thinking),
    "citations": (TEXTS, citations),
    "frame of the sandbox": (BYTES.map(lambda data: len(data).to_bytes(4, "little") + data) | BYTES, frame),
    "line of a parsing process": (BYTES | PARCELS, parsing_process),
    "page token": (TEXTS | BYTES.map(base64url), page_token),
    "service token": (TEXTS, identity),
    "signed link": (TEXTS | st.tuples(BYTES, BYTES).map(lambda p: ".".join(map(base64url, p))), link),
    "API key": (TEXTS, credential),
    "answer to a pause": (TEXTS, pause_answer),
    "saved run": (BYTES, continuation),
}


@pytest.mark.parametrize("body", ['{"input": "\\ud800"}', '{"input": "x", "labels": {"a": "\\udfff"}}', "[" * 50_000])
async def test_a_body_that_no_text_can_hold_is_refused(body: str) -> None:
    async with gateway_suite() as suite:
        reply = await suite.http.post("/v1/runs", content=body, headers={"content-type": "application/json"})
    assert reply.status_code == 400, reply.text


def attack(name: str, examples: int, *, known: bool) -> None:
    inputs, target = TARGETS[name]
    taking_anything(inputs, target, examples, known=known)


@pytest.mark.parametrize("name", TARGETS)
def test_anything_is_read_or_refused(name: str) -> None:
    _, target = TARGETS[name]
    takes_bytes = target in {arguments, schema, chat_chunk, frame, parsing_process, continuation}
    for text in HOSTILE:
        data = text.encode("utf-8", "surrogatepass")
        target(data if takes_bytes else text)
    if target is frame:
        frame(len(HOSTILE[0]).to_bytes(4, "little") + HOSTILE[0].encode())
    if target is page_token:
        page_token(base64url(HOSTILE[0].encode()))
    attack(name, 20, known=True)


@pytest.mark.prove
@pytest.mark.parametrize("name", TARGETS)
def test_nothing_new_breaks_it_either(name: str) -> None:
    attack(name, 300, known=False)


def zipped(name: str, content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(name, content)
    return out.getvalue()


FILES: dict[str, bytes] = {
    "page.html": b"<html><body><h1>T</h1><p>text</p><table><tr><td>a</td></tr></table></body></html>",
    "notes.md": b"# T\n\ntext\n\n| a | b |\n|---|---|\n| 1 | 2 |\n",
    "data.json": b'[{"a": 1, "b": {"c": [1, 2]}}]',
    "lines.jsonl": b'{"a": 1}\n{"a": 2}\n',
    "table.csv": b"a,b\n1,2\n",
    "mail.eml": b"From: a@b\nSubject: s\nContent-Type: text/plain\n\nbody\n",
    "code.py": b"def f():\n    return 1\n",
    "text.txt": "text 文本".encode(),
    "paper.pdf": retrieval_files.pdf([(12.0, "text")]),
    "letter.docx": zipped("word/document.xml", b"<w:document/>"),
    "slides.pptx": zipped("ppt/presentation.xml", b"<p/>"),
    "sheet.xlsx": zipped("xl/workbook.xml", b"<workbook/>"),
}


def parse(folder: Path, name: str, content: bytes) -> None:
    path = folder / name
    path.write_bytes(content)
    lines = answers(pack_job(CutJob(path=str(path), name=name, max_characters=100_000, sizes=Cutting())))
    try:
        unpack_head(next(lines))
        intake = Intake(100_000)
        while intake.take(next(lines)) is not None:
            pass
    except UnreadableFile as refusal:
        assert refusal.reason
        assert refusal.message
    assert next(lines, None) is None


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Draw a file with some bytes changed, cut or put in."""
    content = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, len(content)))
        content[at : at + draw(st.integers(0, 8))] = draw(st.binary(max_size=12))
    return bytes(content)


def attack_file(name: str, examples: int, *, known: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        inputs = damaged(FILES[name]) | st.binary(max_size=200)
        taking_anything(inputs, lambda content: parse(Path(folder), name, content), examples, known=known)


@pytest.mark.parametrize("name", FILES)
def test_any_file_is_read_or_refused_with_a_reason(name: str, tmp_path: Path) -> None:
    for text in HOSTILE[:6]:
        parse(tmp_path, name, text.encode("utf-8", "surrogatepass"))
    attack_file(name, 8, known=True)


@pytest.mark.prove
@pytest.mark.parametrize("name", FILES)
def test_no_damage_to_a_file_breaks_its_parser(name: str) -> None:
    attack_file(name, 60, known=False)

"""Documents are parsed and cut in processes: what comes out, how far ahead they work, and what ends them."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from pathlib import Path

import pytest

from services.retrieval.adapters.parsers import cutting, parsing_children
from services.retrieval.adapters.parsers.cutting import ProcessCutter
from services.retrieval.adapters.parsers.detect import parser_for
from services.retrieval.adapters.parsers.exchange import LONGEST, Intake, Nonsense, unpack_head
from services.retrieval.adapters.parsers.parsing_children import Limits
from services.retrieval.adapters.parsers.process import ProcessParser
from services.retrieval.chunk import Cutting, cut
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Block
from services.retrieval.portions import Head, Portion
from services.retrieval.tokens import index_text, terms
from tests.support import babbling_parser, retrieval_files

LIMITS = Limits(seconds=60, memory_bytes=2**31, max_characters=10**8)
SIZES = Cutting(parent_max=400, parent_min=350, heading_min=180, child_min=40, child_max=60)
CHINESE = "差旅费用报销制度规定,员工出差住宿费标准为每晚六百元。"
# A few thousand of these are several times what may wait in the pipe.
LONG = "The tariff of the northern rule is twelve euro. " * 20 + "\n\n"

FILES: dict[str, bytes] = {
    "travel/a.md": b"# Travel\n\n"
    + b"See the rates of hotels. " * 40
    + b"\n\n## Rates\n\n| City | Limit |\n|---|---|\n"
    b"| Oslo | 210 |\n\n```sh\nrun\n```\n",
    "a.html": b"<!doctype html><title>T</title><main><h1>Rates</h1><p>Hotels cost <b>much</b>.<ul><li>one</ul></main>",
    "a.pdf": retrieval_files.pdf(
        [(20, "Travel guide"), *[(10, f"Hotels are paid up to {n} euro.") for n in range(40)]],
        [(14, "Flights"), (10, "Flights need approval.")],
        title="Guide",
    ),
    "a.docx": retrieval_files.docx_file(),
    "a.pptx": retrieval_files.pptx_file(),
    "a.xlsx": retrieval_files.xlsx_file(),
    "a.eml": retrieval_files.email_file(),
    "a.csv": b"City;Limit\n" + b"Oslo;210\n" * 50,
    "a.json": b'{"title": "\\ud800 T", "people": [{"name": "Ann \\ud800. Bob", "tags": ["a", 1]}]}',
    "a.jsonl": b'{"q": 1}\n{"q": 2}\n',
    "src/a.py": b"import os\n\ndef firstOfAll():\n    pass\n\nclass Second:\n    x = 1\n" * 20,
    "gbk.txt": (CHINESE * 40).encode("gbk"),
    "wrong.pdf": ("x" * 900 + " three.14\n\n3" + CHINESE * 20).encode(),
}


@asynccontextmanager
async def cutter(limits: Limits = LIMITS, sizes: Cutting = SIZES) -> AsyncIterator[ProcessCutter]:
    made = ProcessCutter(limits, sizes, workers=1)
    try:
        yield made
    finally:
        await made.close()


async def whole(made: ProcessCutter, path: Path, name: str) -> tuple[Head, list[Portion], dict[str, int]]:
    portions: list[Portion] = []
    counts: dict[str, int] = {}
    async with made.open(path, name) as document:
        async for parcel in document.parcels:
            portions.extend(parcel.portions)
            counts.update(parcel.terms)
    return document.head, portions, counts


async def refusal(made: ProcessCutter, path: Path, name: str) -> UnreadableFile:
    with pytest.raises(UnreadableFile) as refused:
        await whole(made, path, name)
    return refused.value


def process_of(made: ProcessCutter) -> asyncio.subprocess.Process:
    process = made._pool._children[0]._process
    assert process is not None
    return process


def file(folder: Path, content: bytes | str) -> Path:
    path = folder / "file"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def in_process(path: Path, name: str) -> tuple[str, list[Portion], dict[str, int]]:
    """Return title, portions and terms as they were made before other processes made them."""
    parsed = import_module(f"services.retrieval.adapters.parsers.{parser_for(path, name)}").parse(path, name)
    title, stem = whole_characters(parsed.title).strip() or Path(name).stem, Path(name).stem
    blocks = [
        Block(text=whole_characters(one.text), kind=one.kind, level=one.level, page=one.page) for one in parsed.blocks
    ]
    portions: list[Portion] = []
    counts: dict[str, int] = {}
    for parent in cut(blocks, SIZES):
        tokens = [index_text(parent.text[s.start : s.end], f"{title}\n{stem}\n{s.heading}") for s in parent.spans]
        portions.append(Portion(text=parent.text, start=parent.start, spans=parent.spans, tokens=tuple(tokens)))
        for term in set(terms(parent.text)):
            counts[term] = counts.get(term, 0) + 1
    return title, portions, counts


def whole_characters(text: str) -> str:
    """Return the text with halves of characters as question marks."""
    return text.encode("utf-8", "replace").decode()


async def test_every_format_is_cut_as_in_one_process_by_one_process(tmp_path: Path) -> None:
    async with cutter() as made:
        processes = set()
        for name, content in FILES.items():
            path = file(tmp_path, content)
            title, portions, counts = in_process(path, name)
            head, *found = await whole(made, path, name)
            assert (head.title, *found) == (title, portions, counts), name
            processes.add(process_of(made).pid)

        assert len(processes) == 1
        assert list(tmp_path.iterdir()) == [tmp_path / "file"]


async def test_a_refused_file_costs_no_process(tmp_path: Path) -> None:
    async with cutter() as made:
        reasons = [
            (await refusal(made, file(tmp_path, content), "a.txt")).reason for content in (b"", b" \n ", b"GIF8")
        ]
        first = process_of(made).pid
        head, portions, _ = await whole(made, file(tmp_path, "text"), "a.txt")

        assert reasons == ["EMPTY", "EMPTY", "UNSUPPORTED_DOCUMENT"]
        assert (head.title, [one.text for one in portions]) == ("a", ["text"])
        assert process_of(made).pid == first


async def test_what_is_wrong_at_the_end_of_a_file_is_told_before_anything_of_it(tmp_path: Path) -> None:
    path = file(tmp_path, b'{"q": 1}\n' * 20_000 + b"{")
    async with cutter() as made:
        with pytest.raises(UnreadableFile, match="line 20001"):
            async with made.open(path, "a.jsonl"):
                raise AssertionError
    async with cutter(Limits(seconds=60, memory_bytes=2**31, max_characters=1000)) as made:
        with pytest.raises(UnreadableFile, match="more than 1,000 characters"):
            async with made.open(file(tmp_path, LONG * 2), "a.txt"):
                raise AssertionError


async def test_the_process_is_only_so_far_ahead(tmp_path: Path) -> None:
    path = file(tmp_path, LONG * 3_000)
    async with cutter(sizes=Cutting()) as made, made.open(path, "a.txt") as document:
        reader = process_of(made).stdout
        assert reader is not None
        async with asyncio.timeout(60):
            while not reader._paused:  # type: ignore[attr-defined]
                await asyncio.sleep(0.01)
        assert len(reader._buffer) < 3 * LONGEST  # type: ignore[attr-defined]
        end = 0
        async for parcel in document.parcels:
            for portion in parcel.portions:
                end = portion.start + len(portion.text)
        assert end > len(LONG) * 2_900


async def test_a_document_may_be_left_in_the_middle(tmp_path: Path) -> None:
    path = file(tmp_path, LONG * 3_000)
    async with cutter(sizes=Cutting()) as made:
        async with made.open(path, "a.txt") as document:
            await anext(document.parcels)
            left = process_of(made)
        assert left.returncode == -signal.SIGKILL
        assert len((await whole(made, file(tmp_path, "text"), "a.txt"))[1]) == 1


async def test_a_process_that_is_killed_in_the_middle_costs_its_file_alone(tmp_path: Path) -> None:
    path = file(tmp_path, LONG * 3_000)
    async with cutter(sizes=Cutting()) as made:
        with pytest.raises(UnreadableFile, match="needed more memory") as refused:
            async with made.open(path, "a.txt") as document:
                await anext(document.parcels)
                os.kill(process_of(made).pid, signal.SIGKILL)
                async for _ in document.parcels:
                    pass
        assert refused.value.reason == "TOO_LARGE"
        assert len((await whole(made, file(tmp_path, "text"), "a.txt"))[1]) == 1


async def test_a_file_that_takes_too_long_ends_its_parser_alone(tmp_path: Path) -> None:
    slow = file(tmp_path, "# heading\n\ntext\n" * 400_000)
    async with cutter(Limits(seconds=0.4, memory_bytes=2**31, max_characters=10**9)) as made:
        assert (await refusal(made, slow, "slow.md")).reason == "TOO_SLOW"
        made._limits = LIMITS
        assert len((await whole(made, file(tmp_path, "text"), "a.txt"))[1]) == 1


async def test_a_file_that_is_made_to_be_cut_slowly_is_refused(tmp_path: Path) -> None:
    # Nothing but headings: they wait for the text that they belong to, and the more there are, the slower.
    slow = file(tmp_path, "# one more\n\n" * 30_000)
    async with cutter(sizes=Cutting()) as made:
        with pytest.raises(UnreadableFile, match="cutting the file's text took longer") as refused:
            async with made.open(slow, "slow.md") as document:
                assert isinstance(document.parcels, cutting._Parcels)
                document.parcels._left = 0.2
                await anext(document.parcels)
        assert refused.value.reason == "TOO_SLOW"


async def test_time_in_which_nobody_waits_is_not_the_files(tmp_path: Path) -> None:
    async with cutter() as made, made.open(file(tmp_path, LONG * 200), "a.txt") as document:
        parcels = document.parcels
        assert isinstance(parcels, cutting._Parcels)
        parcels._left = 1.0
        first = await anext(parcels)
        brought = sum(len(portion.text) for portion in first.portions)
        # What came has made room for more, but never for more than at the beginning.
        assert 0 < parcels._left <= 1.0 + brought / cutting.SLOWEST < LIMITS.seconds
        parcels._left = LIMITS.seconds
        await anext(parcels)
        assert parcels._left <= LIMITS.seconds


async def test_a_file_that_takes_too_much_memory_is_refused(tmp_path: Path) -> None:
    big = file(tmp_path, "word " * 40_000_000)
    async with cutter(Limits(seconds=60, memory_bytes=400 * 2**20, max_characters=10**9)) as made:
        assert (await refusal(made, big, "big.md")).reason == "TOO_LARGE"


async def test_headings_as_long_as_chapters_are_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "<html><h1>" + "heading " * 90_000 + "</h1><p>" + "text. " * 2_000)
    async with cutter(sizes=Cutting()) as made:
        refused = await refusal(made, path, "a.html")

    assert (refused.reason, "and its headings" in refused.message) == ("TOO_LARGE", True)


async def test_cutting_gives_way_to_searches(tmp_path: Path) -> None:
    async with cutter() as made:
        await whole(made, file(tmp_path, "text"), "a.txt")
        ours, its = (os.getpriority(os.PRIO_PROCESS, pid) for pid in (0, process_of(made).pid))

    assert its == min(ours + cutting.NICE, 19)


@pytest.fixture
def taken_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing_children, "WORKER", babbling_parser.__name__)


@pytest.mark.usefixtures("taken_over")
async def test_nonsense_is_refused_and_ends_the_process(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = file(tmp_path, "hostile")
    async with cutter() as made:
        for name in ("no JSON", "a line without an end", "a hole between portions"):
            caplog.clear()
            refused = await refusal(made, path, f"{name}.txt")
            assert refused.reason == "UNSUPPORTED_DOCUMENT", name
            assert "nonsense" in refused.message, name
            assert [record.__dict__["event"] for record in caplog.records] == ["parser.nonsense"], name
            assert made._pool._children[0]._process is None, name
        assert len((await whole(made, path, "good.txt"))[1]) == 1


@pytest.mark.parametrize("said", babbling_parser.NONSENSE.values(), ids=babbling_parser.NONSENSE)
def test_what_no_parser_says_is_not_believed(said: tuple[bytes, ...]) -> None:
    intake = Intake(10_000)
    with pytest.raises(Nonsense):
        unpack_head(said[0])
        for line in said[1:]:
            intake.take(line)


@pytest.mark.usefixtures("taken_over")
async def test_a_process_that_never_ends_is_refused(tmp_path: Path) -> None:
    async with cutter(Limits(seconds=60, memory_bytes=2**31, max_characters=10_000)) as made:
        assert "nonsense" in (await refusal(made, file(tmp_path, "hostile"), "endless.txt")).message


@pytest.mark.usefixtures("taken_over")
async def test_nonsense_instead_of_text_links_or_pages_is_refused(tmp_path: Path) -> None:
    path = file(tmp_path, "hostile")
    parser = ProcessParser(LIMITS, workers=1)
    try:
        with pytest.raises(UnreadableFile, match="nonsense"):
            await parser.text(path, "no object.txt", 100)
        with pytest.raises(UnreadableFile, match="nonsense"):
            await parser.links(path, "http://site.test/")
        assert await parser.render(path, 3) == []
    finally:
        await parser.close()


async def test_text_is_told_as_far_as_it_was_asked_for_and_one_process_is_enough(tmp_path: Path) -> None:
    parser = ProcessParser(LIMITS, workers=2)
    try:
        short = await parser.text(file(tmp_path, "one\n\ntwo"), "a.txt", 100)
        cut_off = await parser.text(file(tmp_path, "one\n\ntwo"), "a.txt", 5)
        with pytest.raises(UnreadableFile, match="holds no text"):
            await parser.text(file(tmp_path, " \n"), "a.txt", 5)
        started = [child for child in parser._pool._children if child._process is not None]
    finally:
        await parser.close()

    assert (short.text, short.truncated) == ("one\n\ntwo", False)
    assert (cut_off.text, cut_off.truncated) == ("one\n\n", True)
    assert len(started) == 1

"""Each file format, parsed in process; limits and hostile files are the parsing process's tests."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

import pytest

from services.retrieval.adapters.parsers.detect import parser_for
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Block, BlockKind
from tests.support import retrieval_files as files

HEADING, ROW, CODE = BlockKind.HEADING, BlockKind.ROW, BlockKind.CODE


@pytest.fixture
def read(tmp_path: Path):  # type: ignore[no-untyped-def]
    def parse(name: str, content: bytes | str) -> tuple[str, str, list[Block]]:
        path = tmp_path / "file"
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        module = import_module(f"services.retrieval.adapters.parsers.{parser_for(path, name)}")
        parsed = module.parse(path, name)
        return parsed.media_type, parsed.title, list(parsed.blocks)

    return parse


def texts(blocks: list[Block]) -> list[str]:
    return [block.text for block in blocks]


def test_markdown_knows_headings_tables_code_and_links(read) -> None:  # type: ignore[no-untyped-def]
    content = (
        "# Travel\n\nSee [the **rates**](rates.md).\n\nHotels\n------\n\n| City | Limit |\n|---|---:|\n| Oslo | 210 |\n"
        "\n```sh\n# not a heading\nrun\n```\n- one\n- two\n"
    )
    media_type, title, blocks = read("a.md", content)

    assert (media_type, title) == ("text/markdown", "Travel")
    assert [(b.kind, b.level, b.text) for b in blocks] == [
        (HEADING, 1, "Travel"),
        (BlockKind.TEXT, 0, "See the rates."),
        (HEADING, 2, "Hotels"),
        (ROW, 0, "City: Oslo; Limit: 210"),
        (CODE, 0, "# not a heading\nrun"),
        (BlockKind.TEXT, 0, "- one\n- two"),
    ]


def test_markdown_takes_its_title_from_front_matter(read) -> None:  # type: ignore[no-untyped-def]
    _, title, blocks = read("a.md", '---\ntitle: "Rules"\ntags: x\n---\n\ntext')

    assert (title, texts(blocks)) == ("Rules", ["text"])


def test_html_leaves_out_scripts_and_furniture(read) -> None:  # type: ignore[no-untyped-def]
    content = (
        "<!doctype html><title>T</title><script>alert('evil')</script><style>p{}</style><nav>Home</nav>"
        "<main><h1>Rates</h1><p>Hotels cost&nbsp;<b>much</b>.<br>Really.</p><ul><li>one<li>two</ul>"
        "<table><tr><th>City<th>Limit<tr><td>Oslo<td>210</table><p onclick='x()'>end</p></main><footer>Imprint</footer>"
    )
    media_type, title, blocks = read("a.html", content)

    assert (media_type, title) == ("text/html", "Rates")
    assert texts(blocks) == ["Rates", "Hotels cost much. Really.", "- one", "- two", "City: Oslo; Limit: 210", "end"]


def test_pdf_has_pages_headings_and_paragraphs(read) -> None:  # type: ignore[no-untyped-def]
    content = files.pdf(
        [
            (20, "Travel guide"),
            (10, "Hotels are paid up to"),
            (10, "two hundred euro."),
            (10, ""),
            (10, "Trains are free."),
        ],
        [(14, "Flights"), (10, "Flights need approval.")],
        title="Guide",
    )
    media_type, title, blocks = read("a.pdf", content)

    assert (media_type, title) == ("application/pdf", "Guide")
    assert [(b.kind, b.page, b.text) for b in blocks] == [
        (HEADING, 1, "Travel guide"),
        (BlockKind.TEXT, 1, "Hotels are paid up to\ntwo hundred euro."),
        (BlockKind.TEXT, 1, "Trains are free."),
        (HEADING, 2, "Flights"),
        (BlockKind.TEXT, 2, "Flights need approval."),
    ]


def test_docx_has_headings_lists_and_tables(read) -> None:  # type: ignore[no-untyped-def]
    _, title, blocks = read("a.docx", files.docx_file())

    assert title == "Leave policy"
    assert texts(blocks) == [
        "Leave policy",
        "Everyone has thirty days of leave.",
        "Sick leave",
        "- A doctor's note is needed from day three.",
        "Kind: Marriage; Days: 5",
        "Kind: Moving house; Days: 1",
    ]


def test_pptx_has_slides_tables_and_notes(read) -> None:  # type: ignore[no-untyped-def]
    _, title, blocks = read("a.pptx", files.pptx_file())

    assert title == "Quarterly review"
    assert [(b.page, b.text) for b in blocks] == [
        (1, "Quarterly review"),
        (2, "Revenue"),
        (2, "Revenue grew by twelve percent."),
        (2, "Region: Asia; Growth: 20 %"),
        (2, "Notes: Mention the new office."),
    ]


def test_xlsx_rows_carry_their_column_names(read) -> None:  # type: ignore[no-untyped-def]
    _, _, blocks = read("a.xlsx", files.xlsx_file())

    assert texts(blocks) == ["Rates", "City: Oslo; Limit: 210.5", "库存", "名称: 显示器; 数量: 12"]


def test_csv_rows_carry_their_column_names_and_the_delimiter_is_found(read) -> None:  # type: ignore[no-untyped-def]
    _, _, blocks = read("a.csv", 'City;Limit\nOslo;210\n"São Paulo; BR";90\n')

    assert texts(blocks) == ["City: Oslo; Limit: 210", "City: São Paulo; BR; Limit: 90", "Columns: City, Limit"]


def test_json_records_show_their_paths(read) -> None:  # type: ignore[no-untyped-def]
    _, title, blocks = read("a.json", '{"title": "T", "people": [{"name": "Ann", "tags": ["a", 1]}], "n": {"x": null}}')

    assert title == "T"
    assert texts(blocks) == ["title: T", "people", "name: Ann\ntags: a, 1", "n.x: null"]


def test_json_lines_are_one_record_a_line(read) -> None:  # type: ignore[no-untyped-def]
    _, _, blocks = read("a.jsonl", '{"q": 1}\n\n{"q": 2}\n')

    assert texts(blocks) == ["q: 1", "q: 2"]


def test_broken_json_names_the_line(read) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnreadableFile, match="line 2 is no valid JSON"):
        read("a.json", '{"a": 1,\n b}')


def test_code_is_cut_at_definitions(read) -> None:  # type: ignore[no-untyped-def]
    media_type, title, blocks = read("src/a.py", "import os\n\ndef first():\n    pass\n\nclass Second:\n    x = 1\n")

    assert (media_type, title) == ("text/x-source", "a.py")
    assert [b.text for b in blocks if b.kind is HEADING] == ["first", "Second"]
    assert "    x = 1" in blocks[-1].text


def test_email_tells_who_what_when_and_names_attachments(read) -> None:  # type: ignore[no-untyped-def]
    _, title, blocks = read("a.eml", files.email_file())

    assert title == "放假通知"
    assert "From: Ann <ann@example.com>" in blocks[0].text
    assert texts(blocks)[1:] == ["The office is closed on Friday.", "Attachments: plan.pdf"]


CHINESE = "差旅费用报销制度规定,员工出差住宿费标准为每晚六百元。" * 3


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "gbk", "gb18030", "utf-16", "utf-16-le", "utf-16-be"])
def test_chinese_text_is_read_in_every_encoding(read, encoding: str) -> None:  # type: ignore[no-untyped-def]
    _, _, blocks = read("a.txt", CHINESE.encode(encoding))

    assert texts(blocks) == [CHINESE]


def test_western_text_is_read_as_windows_1252(read) -> None:  # type: ignore[no-untyped-def]
    _, _, blocks = read("a.txt", "Müller’s café costs 5 €".encode("cp1252"))

    assert texts(blocks) == ["Müller’s café costs 5 €"]


def test_html_in_gbk_is_read_by_its_own_declaration(read) -> None:  # type: ignore[no-untyped-def]
    content = f'<html><head><meta charset="gbk"></head><body><p>{CHINESE}</p></body></html>'

    assert texts(read("a.html", content.encode("gbk"))[2]) == [CHINESE]


def test_control_characters_and_nul_are_left_out(read) -> None:  # type: ignore[no-untyped-def]
    assert texts(read("a.md", "a\x01b\x0bc")[2]) == ["abc"]


def test_the_content_decides_not_the_name(read) -> None:  # type: ignore[no-untyped-def]
    assert read("notes.txt", files.docx_file())[0].endswith("wordprocessingml.document")
    assert read("notes.docx", files.pdf([(10, "Hello there")]))[0] == "application/pdf"
    assert read("notes", "<html><p>hi")[0] == "text/html"


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("a.txt", b"", "EMPTY"),
        ("a.pdf", files.pdf([]), "NO_TEXT"),
        ("a.pdf", files.pdf([(10, "secret")], encrypted=True), "ENCRYPTED"),
        ("a.pdf", b"%PDF-1.7 nothing of the kind", "UNSUPPORTED_DOCUMENT"),
        ("a.docx", files.zip_bomb_docx(), "TOO_LARGE"),
        ("a.docx", b"PK\x03\x04 not really", "UNSUPPORTED_DOCUMENT"),
        ("a.doc", b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1 old", "UNSUPPORTED_DOCUMENT"),
        ("a.txt", b"\x89PNG\r\n\x1a\n", "UNSUPPORTED_DOCUMENT"),
        ("a.txt", bytes(range(256)) * 40, "UNSUPPORTED_DOCUMENT"),
        ("a.eml", b"just words\n", "UNSUPPORTED_DOCUMENT"),
    ],
)
def test_what_cannot_be_read_says_why(read, name: str, content: bytes, reason: str) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(UnreadableFile) as refused:
        read(name, content)

    assert refused.value.reason == reason
    assert refused.value.message

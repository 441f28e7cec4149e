"""Which parser reads a file: the content decides, the name only chooses among text formats."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from services.retrieval.domain.errors import UnreadableFile

TEXT_SUFFIXES = {
    ".md": "markdown",
    ".markdown": "markdown",
    ".html": "html",
    ".htm": "html",
    ".xhtml": "html",
    ".csv": "delimited",
    ".tsv": "delimited",
    ".json": "json_file",
    ".jsonl": "json_file",
    ".ndjson": "json_file",
    ".eml": "email_file",
}
_CODE = """
    .py .pyi .js .mjs .ts .tsx .jsx .java .kt .scala .go .rs .c .h .cc .cpp .hpp .cs .rb .php .swift .sh .bash .sql .r
    .lua .pl .proto .yaml .yml .toml .ini .cfg .conf .xml .css .scss .tf .gradle .dockerfile .vue .ipynb
"""
CODE_SUFFIXES = frozenset(_CODE.split())
_OFFICE_PARTS = (("word/document.xml", "docx"), ("ppt/presentation.xml", "pptx"), ("xl/workbook.xml", "xlsx"))
_OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


def parser_for(path: Path, name: str) -> str:
    """Return the name of the module that parses the file; UnreadableFile when none does."""
    with path.open("rb") as file:
        head = file.read(1024)
    if not head:
        raise UnreadableFile("EMPTY", "the file is empty")
    if b"%PDF-" in head:
        return "pdf"
    if head.startswith(b"PK\x03\x04"):
        return _office(path)
    for recognises, kind in _BINARY:
        if recognises(head):
            raise UnreadableFile("UNSUPPORTED_DOCUMENT", f"the file is {kind}, which cannot be read")
    if "://" in name:
        # An address often ends in what made the page (.php) or in its query: what came is believed first.
        if looks_like_html(head):
            return "html"
        name = urlsplit(name).path
    suffix = PurePosixPath(name).suffix.lower()
    if suffix in TEXT_SUFFIXES:
        return TEXT_SUFFIXES[suffix]
    if suffix in CODE_SUFFIXES:
        return "code"
    return "html" if looks_like_html(head) else "text"


# What names promise, and what the parsers of their content are called.
_PROMISED = {
    ".pdf": "pdf",
    ".docx": "docx",
    ".pptx": "pptx",
    ".xlsx": "xlsx",
    ".doc": "docx",
    ".xls": "xlsx",
    ".txt": "text",
}
_KINDS = {
    "pdf": "a PDF",
    "docx": "a Word document",
    "pptx": "a presentation",
    "xlsx": "a spreadsheet",
    "html": "HTML",
    "text": "plain text",
}


def remark(kind: str, name: str) -> str:
    """Return a sentence when the file is of another kind than its name says, else nothing. `kind` is parser_for's."""
    suffix = PurePosixPath(urlsplit(name).path if "://" in name else name).suffix.lower()
    promised = _PROMISED.get(suffix, TEXT_SUFFIXES.get(suffix, kind))
    if promised == kind or kind not in _KINDS or "://" in name:
        return ""
    return f"it is named {suffix} but holds {_KINDS[kind]}, and was read as that"


def _office(path: Path) -> str:
    try:
        with zipfile.ZipFile(path) as archive:
            members = set(archive.namelist())
    except zipfile.BadZipFile:
        raise UnreadableFile("UNSUPPORTED_DOCUMENT", "the file is a damaged archive") from None
    for part, module in _OFFICE_PARTS:
        if part in members:
            return module
    raise UnreadableFile("UNSUPPORTED_DOCUMENT", "the file is an archive; add the files inside it")


def looks_like_html(head: bytes) -> bool:
    """Return whether a file that begins so is HTML."""
    start = head.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    return start.startswith((b"<!doctype html", b"<html", b"<head", b"<body", b"<title", b"<meta"))


_BINARY: tuple[tuple[Callable[[bytes], bool], str], ...] = (
    (
        lambda head: head.startswith(_OLE),
        "an encrypted or old (before 2007) Office file; save it as DOCX, PPTX or XLSX without a password",
    ),
    (lambda head: head.startswith((b"\x89PNG", b"\xff\xd8\xff", b"GIF8", b"II*\0", b"MM\0*")), "an image"),
    (lambda head: head.startswith((b"\x1f\x8b", b"BZh", b"\xfd7zXZ", b"7z\xbc\xaf", b"Rar!")), "a compressed archive"),
    (lambda head: head.startswith((b"\x7fELF", b"MZ")), "a program"),
)

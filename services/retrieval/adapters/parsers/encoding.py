"""Finding a text file's encoding: byte order mark, UTF-8, UTF-16 by its zeros, GB 18030, Big5, Windows-1252."""

from __future__ import annotations

import codecs
from pathlib import Path

SAMPLE = 256 * 1024
_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
# Most letters of real Chinese text stand in the common block; bytes of another encoding decode to anything.
_COMMON_SHARE = 0.7
_PLAUSIBLE_SHARE = 0.9
_CHINESE_BLOCKS = (("\u4e00", "\u9fff"), ("\u3000", "\u303f"), ("\uff00", "\uffef"))


def encoding_of(path: Path) -> str | None:
    """Return the name of the codec that reads the file, or None when it is not text."""
    with path.open("rb") as file:
        sample = file.read(SAMPLE)
        whole = not file.read(1)
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    if b"\0" in sample:
        return _utf16_without_mark(sample)
    if _decodes(sample, "utf-8", whole=whole) is not None:
        return "utf-8"
    if (unmarked := _utf16_without_mark(sample)) is not None:
        return unmarked
    for name in ("gb18030", "big5"):
        text = _decodes(sample, name, whole=whole)
        if text is not None and _looks_chinese(text):
            return name
    return "cp1252" if _mostly_printable(sample) else None


def _decodes(sample: bytes, name: str, *, whole: bool) -> str | None:
    """Return the sample as text, None when it is not of this encoding; a character cut at the end is no fault."""
    try:
        return codecs.getincrementaldecoder(name)().decode(sample, final=whole)
    except UnicodeDecodeError:
        return None


def _looks_chinese(text: str) -> bool:
    foreign = [c for c in text if ord(c) > 0x7F]
    common = sum(
        1 for c in foreign if "\u4e00" <= c <= "\u9fff" or "\u3000" <= c <= "\u303f" or "\uff00" <= c <= "\uffef"
    )
    return bool(foreign) and common / len(foreign) >= _COMMON_SHARE


def _utf16_without_mark(sample: bytes) -> str | None:
    """Return the byte order under which nearly every pair of bytes is a plausible character."""
    for name in ("utf-16-le", "utf-16-be"):
        text = _decodes(sample, name, whole=False)
        if text and sum(map(_plausible, text)) >= len(text) * _PLAUSIBLE_SHARE:
            return name
    return None


def _plausible(c: str) -> bool:
    return " " <= c <= "~" or c in "\t\r\n" or any(first <= c <= last for first, last in _CHINESE_BLOCKS)


def _mostly_printable(sample: bytes) -> bool:
    controls = sum(1 for byte in sample if byte < 0x20 and byte not in b"\t\n\r\f\x1b")
    return controls <= len(sample) * 0.01

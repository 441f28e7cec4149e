"""Looking at an Office file as an archive, before any library unpacks it."""

from __future__ import annotations

import zipfile
from pathlib import Path

from services.retrieval.domain.errors import UnreadableFile

# Office XML compresses some 20:1; a bomb 1,000:1 and more. Small parts may compress as well as they like.
MAX_RATIO = 200
SMALL = 8 * 2**20
MAX_UNPACKED = 1 * 2**30


def check(path: Path) -> None:
    """Raise UnreadableFile when the archive is encrypted or would unpack to far more than it is."""
    with zipfile.ZipFile(path) as archive:
        unpacked = 0
        for member in archive.infolist():
            if member.flag_bits & 0x1:
                raise UnreadableFile("ENCRYPTED", "the file needs a password; remove it and upload the file again")
            unpacked += member.file_size
            ratio = member.file_size / max(member.compress_size, 1)
            if (member.file_size > SMALL and ratio > MAX_RATIO) or unpacked > MAX_UNPACKED:
                told = f"the file unpacks to {unpacked // 2**20} MiB and more, which no document needs"
                raise UnreadableFile("TOO_LARGE", told)

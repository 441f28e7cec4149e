"""Checks of files that go in and of names that come out."""

from __future__ import annotations

from collections.abc import Sequence

from services.chassis.errors import FieldViolation, InvalidRequest, TooLarge
from services.sandbox.domain import InputFile
from services.sandbox.inside import names
from services.sandbox.limits import MAX_FILES, MAX_FILES_BYTES

CHUNK_BYTES = 256 << 10


def checked_inputs(files: Sequence[InputFile]) -> tuple[InputFile, ...]:
    """Return `files` with composed names; raise InvalidRequest or TooLarge saying which one is wrong and why."""
    total = sum(len(file.content) for file in files)
    if len(files) > MAX_FILES or total > MAX_FILES_BYTES:
        raise TooLarge(
            f"{len(files)} files with {total} bytes are too many; the limits are {MAX_FILES} files and "
            f"{MAX_FILES_BYTES} bytes together"
        )
    checked: dict[str, InputFile] = {}
    for index, file in enumerate(files):
        name = names.normalise(file.name)
        reason = names.rejection(name) or ("it names a folder" if "/" in name else "")
        if not reason and name in checked:
            reason = "the name occurs twice"
        if reason:
            violation = FieldViolation(field=f"files[{index}].name", description=reason)
            raise InvalidRequest(f"file '{names.display(file.name)}': {reason}", violations=[violation])
        checked[name] = InputFile(name=name, content=file.content)
    return tuple(checked.values())

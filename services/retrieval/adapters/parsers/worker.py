"""The parsing process: reads one job a line, writes the text of the file beside it as JSON lines.

`python -m services.retrieval.adapters.parsers.worker MEMORY_BYTES`. A job is {"path", "name", "out"}; the reply is {}
or {"reason", "message"}. The output holds [media_type, title, remark] and then [kind, level, page, text] for each
block. A job with "pages" renders that many pages of a PDF instead: the reply is {"sizes"}, the output one PNG behind
the other. A job with "links", the address that answered the file, has as its reply where the page leads (PageLinks).
"""

from __future__ import annotations

import importlib
import json
import os
import resource
import sys
from dataclasses import asdict, replace
from pathlib import Path

from services.retrieval.adapters import child_loop
from services.retrieval.adapters.parsers.detect import parser_for, remark
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Parsed

TOO_MUCH_MEMORY = UnreadableFile("TOO_LARGE", "reading the file needs more memory than one file may take")


def answer(line: bytes) -> bytes:
    """Do one job and return the reply."""
    job = json.loads(line)
    try:
        if "links" in job:
            return _links(Path(job["path"]), job["links"])
        if "pages" in job:
            return json.dumps({"sizes": _render(Path(job["path"]), Path(job["out"]), job["pages"])}).encode()
        parsed = _parse(Path(job["path"]), job["name"])
        _write(parsed, Path(job["out"]), job["max_characters"])
    except UnreadableFile as refusal:
        return json.dumps({"reason": refusal.reason, "message": refusal.message}).encode()
    except MemoryError:
        return json.dumps({"reason": TOO_MUCH_MEMORY.reason, "message": TOO_MUCH_MEMORY.message}).encode()
    except RecursionError:
        return json.dumps({"reason": "UNSUPPORTED_DOCUMENT", "message": "the file nests too deeply"}).encode()
    except Exception as fault:  # noqa: BLE001  # a parser's fault over hostile input concerns this file alone
        told = f"the file is damaged or of another kind than its name says ({type(fault).__name__})"
        return json.dumps({"reason": "UNSUPPORTED_DOCUMENT", "message": told}).encode()
    return b"{}"


def _parse(path: Path, name: str) -> Parsed:
    kind = parser_for(path, name)
    module = importlib.import_module(f"services.retrieval.adapters.parsers.{kind}")
    parsed: Parsed = module.parse(path, name)
    return replace(parsed, remark=remark(kind, name))


def _links(path: Path, url: str) -> bytes:
    from services.retrieval.adapters.parsers.links import links

    return json.dumps(asdict(links(path, url))).encode()


def _render(path: Path, out: Path, most: int) -> list[int]:
    """Write the first pages of a PDF one behind the other and return their sizes."""
    from services.retrieval.adapters.parsers import render

    with out.open("wb") as file:
        return [file.write(picture) for picture in render.pages(path, most)]


def _write(parsed: Parsed, out: Path, max_characters: int) -> None:
    characters = 0
    with out.open("w", encoding="utf-8", errors="replace") as file:
        file.write(json.dumps([parsed.media_type, parsed.title, parsed.remark]) + "\n")
        for block in parsed.blocks:
            characters += len(block.text)
            if characters > max_characters:
                raise UnreadableFile("TOO_LARGE", f"the file holds more than {max_characters:,} characters of text")
            file.write(json.dumps([block.kind, block.level, block.page, block.text], ensure_ascii=False) + "\n")
    if not characters:
        raise UnreadableFile("EMPTY", "the file holds no text")


def main() -> None:
    """Limit this process and serve."""
    memory = int(sys.argv[1])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)
    child_loop.serve(answer)


if __name__ == "__main__":
    main()

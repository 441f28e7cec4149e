"""The parsing process: `python -m services.retrieval.adapters.parsers.worker MEMORY_BYTES NICE`.

It reads jobs and writes replies (`exchange`). What it writes of a document waits in the pipe until the service takes
it, so it is never far ahead.
"""

from __future__ import annotations

import importlib
import os
import resource
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from services.retrieval.adapters import child_loop
from services.retrieval.adapters.parsers import exchange
from services.retrieval.adapters.parsers.detect import parser_for, remark
from services.retrieval.adapters.parsers.exchange import CutJob, Job, LinksJob, PagesJob, TextJob
from services.retrieval.adapters.parsers.spool import bounded, spooled
from services.retrieval.domain.errors import UnreadableFile
from services.retrieval.domain.text import Parsed, plain
from services.retrieval.portions import head_of, parcels

TOO_MUCH_MEMORY = UnreadableFile("TOO_LARGE", "reading the file needs more memory than one file may take")
TOO_DEEP = UnreadableFile("UNSUPPORTED_DOCUMENT", "the file nests too deeply")


def answers(line: bytes) -> Iterator[bytes]:
    """Do one job and yield the lines of its reply, the last of them a refusal when the file cannot be read."""
    try:
        yield from _answers(exchange.unpack_job(line))
    except UnreadableFile as refusal:
        yield exchange.pack_refusal(refusal)
    except MemoryError:
        yield exchange.pack_refusal(TOO_MUCH_MEMORY)
    except RecursionError:
        yield exchange.pack_refusal(TOO_DEEP)
    except Exception as fault:  # noqa: BLE001  # a parser's fault over hostile input concerns this file alone
        told = f"the file is damaged or of another kind than its name says ({type(fault).__name__})"
        yield exchange.pack_refusal(UnreadableFile("UNSUPPORTED_DOCUMENT", told))


def _answers(job: Job) -> Iterator[bytes]:
    match job:
        case CutJob():
            yield from _cut(job)
        case TextJob():
            parsed = _parse(Path(job.path), job.name)
            yield exchange.pack_text(plain(parsed, bounded(parsed.blocks, job.max_characters), job.most))
        case PagesJob():
            yield exchange.pack_sizes(_render(Path(job.path), Path(job.out), job.most))
        case LinksJob():
            from services.retrieval.adapters.parsers.links import links

            yield exchange.pack_links(links(Path(job.path), job.url))


def _cut(job: CutJob) -> Iterator[bytes]:
    path = Path(job.path)
    parsed = _parse(path, job.name)
    head = head_of(parsed, job.name)
    with spooled(bounded(parsed.blocks, job.max_characters), path.parent) as blocks:
        del parsed
        yield exchange.pack_head(head)
        empty = True
        for parcel in parcels(blocks, head, job.name, job.sizes):
            empty = False
            yield exchange.pack_parcel(parcel)
    if empty:
        raise UnreadableFile("EMPTY", "the file holds no text")
    yield exchange.END


def _parse(path: Path, name: str) -> Parsed:
    kind = parser_for(path, name)
    module = importlib.import_module(f"services.retrieval.adapters.parsers.{kind}")
    parsed: Parsed = module.parse(path, name)
    return replace(parsed, remark=remark(kind, name))


def _render(path: Path, out: Path, most: int) -> list[int]:
    """Write the first pages of a PDF one behind the other and return their sizes."""
    from services.retrieval.adapters.parsers import render

    with out.open("wb") as file:
        return [file.write(picture) for picture in render.pages(path, most)]


def main() -> None:
    """Limit this process and serve."""
    memory, nice = map(int, sys.argv[1:3])
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(nice)
    child_loop.stream(answers)


if __name__ == "__main__":
    main()

"""A parsing process that a file has taken over: the file's name says what it answers.

`python -m tests.support.babbling_parser MEMORY_BYTES NICE`, as the parsers' own worker.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from pathlib import PurePosixPath

import orjson

from services.retrieval.adapters import child_loop
from services.retrieval.adapters.parsers.exchange import END, LONGEST, pack_head, unpack_job
from services.retrieval.portions import Head

HEAD = pack_head(Head(media_type="text/plain", title="T", remark=""))
TEXT = "The tariff is nine euro."


def portion(start: int = 0, text: str = TEXT, tokens: object = "tariff nine euro", page: object = 0) -> list[object]:
    """Return a portion as it goes over the wire, with one child."""
    return [start, text, [[0, len(text), page, "", tokens]]]


def parcel(*portions: object, terms: object = None) -> bytes:
    """Return the line of a parcel."""
    return orjson.dumps({"portions": portions, "terms": terms or {}})


def in_turn(first: int, count: int) -> bytes:
    """Return a parcel of good portions, the first of them the document's `first`."""
    return parcel(*(portion((len(TEXT) + 2) * number) for number in range(first, first + count)))


# What an honest worker never says, line by line behind the job.
NONSENSE: dict[str, tuple[bytes, ...]] = {
    "no JSON": (b"\x00\xff",),
    "no object": (b"[1]",),
    "a head without a title": (b'{"media_type": "text/plain", "remark": ""}',),
    "a line without an end": (b"x" * (3 * LONGEST),),
    "an end at once": (HEAD, END),
    "no JSON behind the head": (HEAD, b"{"),
    "an empty parcel": (HEAD, parcel()),
    "portions that are none": (HEAD, b'{"portions": 5, "terms": {}}'),
    "a portion of another form": (HEAD, parcel([0, "text"])),
    "a portion without children": (HEAD, parcel([0, "text", []])),
    "a portion without text": (HEAD, parcel([0, None, [[0, 1, 0, "", ""]]])),
    "a hole between portions": (HEAD, parcel(portion(), portion(1000))),
    "a portion again": (HEAD, parcel(portion()), parcel(portion())),
    "a child beyond its portion": (HEAD, parcel([0, "text", [[0, 5, 0, "", ""]]])),
    "a child before its portion": (HEAD, parcel([0, "text", [[-1, 4, 0, "", ""]]])),
    "children that overlap": (HEAD, parcel([0, "text", [[0, 3, 0, "", ""], [2, 4, 0, "", ""]]])),
    "an empty child": (HEAD, parcel([0, "text", [[2, 2, 0, "", ""]]])),
    "a place that is no number": (HEAD, parcel([0, "text", [["0", 4, 0, "", ""]]])),
    "a page below none": (HEAD, parcel(portion(page=-1))),
    "tokens that are no text": (HEAD, parcel(portion(tokens=["tariff"]))),
    "terms before portions": (HEAD, parcel(terms={"tariff": 1})),
    "a portion behind terms": (HEAD, parcel(portion(), terms={"tariff": 1}), parcel(portion(len(TEXT) + 2))),
    "a term in more portions than there are": (HEAD, parcel(portion(), terms={"tariff": 2})),
    "a term in no portion": (HEAD, parcel(portion(), terms={"tariff": 0})),
    "a term too long": (HEAD, parcel(portion(), terms={"t" * 41: 1})),
    "more terms than the text has": (HEAD, parcel(portion(), terms={str(n): 1 for n in range(1000)})),
    "a refusal without a reason": (HEAD, b'{"reason": null}'),
}


def answers(line: bytes) -> Iterator[bytes]:
    """Yield what the job's file name asks for."""
    job = unpack_job(line)
    name = PurePosixPath(getattr(job, "name", "good")).stem
    yield from _SCRIPTS[name]() if name in _SCRIPTS else iter(NONSENSE[name])


def _good() -> Iterator[bytes]:
    yield HEAD
    yield in_turn(0, 1)
    yield END


def _dies() -> Iterator[bytes]:
    """Say enough that some of it is stored, then end as the kernel ends what takes too much."""
    yield HEAD
    yield in_turn(0, 300)
    os.kill(os.getpid(), signal.SIGKILL)


def _turns() -> Iterator[bytes]:
    """Say enough that some of it is stored, then nonsense."""
    yield HEAD
    yield in_turn(0, 300)
    yield b"nonsense"


def _endless() -> Iterator[bytes]:
    yield HEAD
    first = 0
    while True:
        yield in_turn(first, 100)
        first += 100


_SCRIPTS: dict[str, Callable[[], Iterator[bytes]]] = {
    "good": _good,
    "dies": _dies,
    "turns": _turns,
    "endless": _endless,
}

if __name__ == "__main__":
    child_loop.stream(answers)

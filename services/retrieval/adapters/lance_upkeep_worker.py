"""The upkeep process: `python -m services.retrieval.adapters.lance_upkeep_worker DIRECTORY NICE`.

A request line is {"table", "clean"}, the latter the age in seconds of versions to drop (null for none), or {"table",
"index": true} to index its vectors. The reply is a sentence that says what failed, empty when nothing did.
"""

from __future__ import annotations

import json
import os
import sys
from datetime import timedelta

import lancedb

from services.retrieval.adapters import child_loop
from services.retrieval.adapters.lance_rows import VECTOR_INDEX


def main() -> None:
    """Open the folder and serve."""
    directory, nice = sys.argv[1:]
    os.nice(int(nice))
    connection = lancedb.connect(directory)

    def answer(line: bytes) -> bytes:
        job = json.loads(line)
        try:
            table = connection.open_table(job["table"])
            if "index" in job:
                table.create_index("vector", config=VECTOR_INDEX)
            else:
                clean = job["clean"]
                table.optimize(cleanup_older_than=None if clean is None else timedelta(seconds=clean))
        except Exception as fault:  # noqa: BLE001  # whatever fails here is told, and tried again by whoever asked
            return json.dumps(f"{type(fault).__name__}: {fault}").encode()
        return b'""'

    child_loop.serve(answer)


if __name__ == "__main__":
    main()

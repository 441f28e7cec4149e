"""Server-sent events from lines."""

from __future__ import annotations

import json

from proctor.client.wirejson import read
from proctor.orchestrator.v1.events_pb2 import RunEvent


class EventReader:
    """Puts the lines of a stream together; comments keep the line alive and are nothing else."""

    def __init__(self) -> None:
        self._data: list[str] = []

    def feed(self, line: str) -> RunEvent | None:
        """Take one line; return an event when it completes one."""
        if line.startswith("data:"):
            self._data.append(line[5:].removeprefix(" "))
        if line or not self._data:
            return None
        data, self._data = "\n".join(self._data), []
        return read(json.loads(data), RunEvent())

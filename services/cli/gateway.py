"""The gateway as the command line's server: requests, problems, and event streams that survive a lost connection."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import httpx

DEFAULT_URL = "http://127.0.0.1:8080"
RECONNECTS = 5


class GatewayError(Exception):
    """The gateway refused, or cannot be reached; `reason` is the stable reason, empty when it is unreachable.

    `violations` maps each field that breaks a rule to what to do about it.
    """

    def __init__(
        self, message: str, reason: str = "", status: int = 0, violations: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.reason = reason
        self.status = status
        self.violations = dict(violations or {})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerEvent:
    """One server-sent event."""

    id: str
    kind: str
    data: str


class Gateway:
    """A client of the HTTP API at `url`; `key` may stay empty on the gateway's own machine."""

    def __init__(self, url: str, key: str = "", transport: httpx.BaseTransport | None = None) -> None:
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        # A stream is silent only between keep-alives, which come every 15 s.
        timeout = httpx.Timeout(10.0, read=60.0)
        self._url = url
        self._client = httpx.Client(
            base_url=url, headers=headers, timeout=timeout, transport=transport, trust_env=False
        )

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def request(self, method: str, path: str, **arguments: Any) -> Any:
        """Return the JSON of a reply (None when it has none), or raise GatewayError."""
        with self._reaching():
            reply = self._client.request(method, path, **arguments)
            raise_for_problem(reply)
        return reply.json() if reply.content else None

    def pages(self, path: str, field: str, params: Mapping[str, Any] | None = None) -> Iterator[Any]:
        """Yield every item of a paginated list."""
        query = dict(params or {})
        while True:
            page = self.request("GET", path, params=query)
            yield from page[field]
            if not page.get("next_page_token"):
                return
            query["page_token"] = page["next_page_token"]

    def lines(self, path: str) -> Iterator[str]:
        """Yield the lines of a download."""
        with self._reaching(), self._client.stream("GET", path) as reply:
            if reply.is_error:
                reply.read()
            raise_for_problem(reply)
            yield from (line for line in reply.iter_lines() if line)

    def stream(self, method: str, path: str, **arguments: Any) -> Iterator[ServerEvent]:
        """Yield server-sent events until the server ends the stream."""
        headers = {"Accept": "text/event-stream", **arguments.pop("headers", {})}
        with self._reaching(), self._client.stream(method, path, headers=headers, **arguments) as reply:
            if reply.is_error:
                reply.read()
            raise_for_problem(reply)
            yield from parse_events(reply.iter_lines())

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except httpx.TransportError as error:
            raise GatewayError(
                f"no answer from {self._url} ({error}); start the suite with `proctor up`, or set PROCTOR_URL"
            ) from error


def parse_events(lines: Iterator[str]) -> Iterator[ServerEvent]:
    """Read server-sent events; comments and fields that are not id, event or data are skipped."""
    fields: dict[str, str] = {}
    for line in lines:
        if not line:
            if "data" in fields:
                yield ServerEvent(id=fields.get("id", ""), kind=fields.get("event", "message"), data=fields["data"])
            fields = {}
            continue
        name, _, value = line.partition(":")
        if name in ("id", "event"):
            fields[name] = value.removeprefix(" ")
        elif name == "data":
            text = value.removeprefix(" ")
            fields["data"] = f"{fields['data']}\n{text}" if "data" in fields else text


def raise_for_problem(reply: httpx.Response) -> None:
    """Raise GatewayError for a problem document, or for any other failure as well as it can be told."""
    if not reply.is_error:
        return
    try:
        problem = reply.json()
    except ValueError:
        problem = {}
    detail = problem.get("detail") or f"HTTP {reply.status_code} from {reply.request.url}"
    violations = {v["field"]: v["description"] for v in problem.get("violations") or ()}
    raise GatewayError(str(detail), str(problem.get("reason", "")), reply.status_code, violations)


def open_gateway() -> Gateway:
    """Return the gateway that PROCTOR_URL and PROCTOR_API_KEY name."""
    return Gateway(os.environ.get("PROCTOR_URL", DEFAULT_URL), os.environ.get("PROCTOR_API_KEY", ""))

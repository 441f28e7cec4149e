"""Posting to an endpoint: the first request is the `openai` client's own, the next ones repeat what it said.

The client builds every request from its options anew, which in a profile was a fifth of the orchestrator's work up to
the first token, and httpx2 what it hands on. What is sent beside the body is the same each time, so it is kept and goes
straight to the transport. A test holds requests and errors equal to the client's.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import httpx2
import openai

from services.orchestrator.models.transport import Headers, ModelTransport

_LENGTH = "content-length"


@dataclass(frozen=True, slots=True)
class _Said:
    """What goes with every body. `request` stands for each of them where one is asked for."""

    request: httpx2.Request
    url: str
    headers: Headers


class Poster:
    """Posts to one path of the endpoint that `client` is for. `transport` is what that client sends with."""

    def __init__(self, client: openai.AsyncOpenAI, transport: ModelTransport, path: str) -> None:
        self._client = client
        self._transport = transport
        self._path = path
        self._said: _Said | None = None

    async def post(self, content: bytes) -> httpx2.Response:
        """Return the response, its body still to be read. Raises openai.OpenAIError or httpx2.HTTPError."""
        if self._said is None:
            response = await self.by_the_client(content)
            sent = response.request
            headers = [pair for pair in sent.headers.multi_items() if pair[0].lower() != _LENGTH]
            self._said = _Said(httpx2.Request("POST", sent.url), str(sent.url), headers)
            return response
        said = self._said
        headers = [*said.headers, (_LENGTH, str(len(content)))]
        response = await self._transport.send(said.request, said.url, headers, content)
        if not response.is_success:
            await response.aread()
            raise self._client._make_status_error_from_response(response)  # noqa: SLF001 - its own words and kinds
        return response

    async def by_the_client(self, content: bytes) -> httpx2.Response:
        """Post as the client does it."""
        # Its generic call: the typed one copies and checks the whole body again, message by message.
        return await self._client.post(
            self._path,
            cast_to=httpx2.Response,
            content=content,
            options={"headers": {"content-type": "application/json", "accept": "text/event-stream"}},
            stream=True,
            stream_cls=openai.AsyncStream[Any],
        )  # type: ignore[return-value]  # `cast_to` a response gives the response itself

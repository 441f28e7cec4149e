"""Posting to an endpoint: the first request is the `openai` client's own, the next ones repeat what it said.

The client builds every request from its options anew, which in a profile was a fifth of the orchestrator's work up to
the first token. What it sends beside the body is the same each time, so it is kept. A test holds requests and errors
equal to the client's.
"""

from __future__ import annotations

from typing import Any

import httpx2
import openai

_OF_THE_BODY = frozenset({b"content-length"})


class Poster:
    """Posts to one path of the endpoint that `client` is for. `http` is what that client sends with."""

    def __init__(self, client: openai.AsyncOpenAI, http: httpx2.AsyncClient, path: str) -> None:
        self._client = client
        self._http = http
        self._path = path
        self._said: tuple[httpx2.URL, list[tuple[bytes, bytes]]] | None = None

    async def post(self, content: bytes) -> httpx2.Response:
        """Return the response, its body still to be read. Raises openai.OpenAIError or httpx2.HTTPError."""
        if self._said is None:
            response = await self.by_the_client(content)
            sent = response.request
            self._said = sent.url, [pair for pair in sent.headers.raw if pair[0].lower() not in _OF_THE_BODY]
            return response
        url, headers = self._said
        response = await self._http.send(httpx2.Request("POST", url, headers=headers, content=content), stream=True)
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

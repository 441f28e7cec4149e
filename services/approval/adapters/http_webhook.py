"""Delivers webhooks over HTTP. Redirects are not followed, and the proxies of the environment are not used."""

from __future__ import annotations

import httpx

from services.approval.ports import DeliveryFailed


class HttpCourier:
    """`Courier` over one client; close it when done."""

    def __init__(self, timeout: float) -> None:
        self._client = httpx.AsyncClient(timeout=timeout, follow_redirects=False, trust_env=False)

    async def post(self, endpoint: str, body: bytes, headers: dict[str, str]) -> None:
        try:
            # Streamed, so that an endless answer is not read: only its status counts.
            async with self._client.stream("POST", endpoint, content=body, headers=headers) as response:
                status = response.status_code
        except httpx.HTTPError as error:
            raise DeliveryFailed(f"{type(error).__name__}: {error}") from error
        if status == httpx.codes.GONE:
            raise DeliveryFailed("the endpoint is gone for good (410)", final=True)
        if not httpx.codes.is_success(status):
            raise DeliveryFailed(f"the endpoint answered {status}")

    async def close(self) -> None:
        """Close the client's connections."""
        await self._client.aclose()

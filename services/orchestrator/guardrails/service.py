"""Asking a service of the operator: one POST for each text, with a short time to answer.

It is sent `{"stage": "input" | "output", "text": "…", "tenant": "…"}` and answers `{"action": "pass"}`,
`{"action": "refuse", "reason": "…"}` or `{"action": "replace", "text": "…", "reason": "…"}`.
"""

from __future__ import annotations

from datetime import timedelta

import httpx

from services.chassis.settings import Secret
from services.orchestrator.guardrails.ports import Checked, Refused, Stage, Verdict

MOST_REASON = 500


class ServiceFailed(Exception):
    """The service gave no verdict; the message says why."""


class Service:
    """A guardrail behind a URL. The client's connections are kept."""

    def __init__(
        self, url: str, key: Secret, timeout: timedelta, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        headers = {"Authorization": f"Bearer {str.__str__(key)}"} if key else {}
        self._url = url
        self._client = httpx.AsyncClient(
            headers=headers, timeout=timeout / timedelta(seconds=1), transport=transport, trust_env=False
        )

    async def judge(self, text: str, stage: Stage, tenant: str) -> Verdict:
        """Return the service's verdict. Raises ServiceFailed."""
        try:
            reply = await self._client.post(self._url, json={"stage": stage.value, "text": text, "tenant": tenant})
            reply.raise_for_status()
            told = reply.json()
        except (httpx.HTTPError, ValueError) as error:
            raise ServiceFailed(f"no verdict ({type(error).__name__})") from error
        match told:
            case {"action": "pass"}:
                return Checked(text=text)
            case {"action": "refuse"}:
                return Refused(reason=str(told.get("reason") or "")[:MOST_REASON])
            case {"action": "replace", "text": str() as changed}:
                return Checked(text=changed, changes=(str(told.get("reason") or "changed")[:MOST_REASON],))
        raise ServiceFailed("an answer of another form")

    async def close(self) -> None:
        """Close the connections."""
        await self._client.aclose()

"""What the `openai` client and the servers behind it raise, as our own errors."""

from __future__ import annotations

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime

import httpx2
import openai

from services.chassis.clock import Clock
from services.orchestrator.models.chat_chunks import ChunkError
from services.orchestrator.models.errors import (
    ContextOverflow,
    ModelError,
    ModelFailed,
    ModelRateLimited,
    ModelRefused,
    ModelUnauthorized,
    ModelUnreachable,
    ModelUrlForbidden,
    forbidden,
)

# How servers word that a prompt is too long: OpenAI, vLLM, llama.cpp, Ollama, TGI, Gemini.
_TOO_LONG = re.compile(
    r"context[ _](length|window|size)|maximum context|too many tokens|prompt is too long|input is too long"
    r"|exceeds? the (maximum|max|available)[\w ]*(tokens|context)|inputs? tokens? \+|token count .* exceeds",
    re.IGNORECASE,
)
_MESSAGE_LIMIT = 500


def from_client(model: str, error: openai.OpenAIError | httpx2.HTTPError, clock: Clock) -> ModelError:
    """Return the model error that a failure before the stream stands for."""
    if isinstance(error, openai.APIStatusError):
        return _from_status(model, error, clock)
    if forbidden(error):
        return ModelUrlForbidden(model, "leads to a private network; change its base URL")
    cause = error.__cause__ or error
    text = str(cause) or type(cause).__name__
    return ModelUnreachable(model, f"cannot be reached: {text}; check its base URL and that it runs")


def _from_status(model: str, error: openai.APIStatusError, clock: Clock) -> ModelError:
    status, message = error.status_code, _message(error)
    code = str(error.code or "")
    wait = retry_after(error.response.headers, clock)
    if status in (401, 403):
        return ModelUnauthorized(model, f"refused the credentials (HTTP {status}: {message}); check its API key")
    if status == 429 and code != "insufficient_quota":
        return ModelRateLimited(model, f"limits the rate: {message}", retry_after=wait)
    if status in (400, 413, 422) and (code == "context_length_exceeded" or _TOO_LONG.search(message)):
        return ContextOverflow(model, f"cannot take so long a prompt: {message}")
    if status == 404:
        return ModelRefused(model, f"does not exist at its endpoint (HTTP 404: {message}); check its upstream name")
    if status >= 500 or status in (408, 409):
        return ModelFailed(model, f"failed with HTTP {status}: {message}", retry_after=wait)
    return ModelRefused(model, f"refused the request with HTTP {status}: {message}")


def from_chunk(model: str, error: ChunkError) -> ModelError:
    """Return the model error for a failure that the server reported inside its stream."""
    if error.code == "context_length_exceeded" or _TOO_LONG.search(error.message):
        return ContextOverflow(model, f"cannot take so long a prompt: {error.message[:_MESSAGE_LIMIT]}")
    if error.code in ("rate_limit_exceeded", "429"):
        return ModelRateLimited(model, f"limits the rate: {error.message[:_MESSAGE_LIMIT]}")
    return ModelFailed(model, f"failed while it answered: {error.message[:_MESSAGE_LIMIT]}")


def _message(error: openai.APIStatusError) -> str:
    body = error.body
    if isinstance(body, Mapping) and isinstance(body.get("message"), str):
        return str(body["message"])[:_MESSAGE_LIMIT]
    return " ".join(error.response.text.split())[:_MESSAGE_LIMIT] or "no message"


def retry_after(headers: Mapping[str, str], clock: Clock) -> float | None:
    """Return the seconds a server asks to wait, from `retry-after-ms` or `Retry-After` (seconds or a date)."""
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        value = headers.get(name)
        if value is None:
            continue
        try:
            return max(0.0, float(value) * unit)
        except ValueError:
            pass
        try:
            return max(0.0, (parsedate_to_datetime(value) - clock.now()).total_seconds())
        except (ValueError, TypeError):
            continue
    return None

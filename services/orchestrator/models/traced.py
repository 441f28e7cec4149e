"""Telemetry of model calls: one span per logical call, one per attempt, metrics and a log line, from one clock."""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime
from urllib.parse import urlsplit

from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, set_span_in_context

from services.chassis import names
from services.chassis.clock import Clock
from services.chassis.errors import ServiceError
from services.chassis.telemetry import Telemetry
from services.orchestrator.models.call_metrics import CallMetrics
from services.orchestrator.models.content import reply_content, request_content
from services.orchestrator.models.errors import ModelError
from services.orchestrator.models.layers import Events, TimedModel
from services.orchestrator.models.model_settings import ModelSettings
from services.orchestrator.models.ports import CallTiming, ModelReply, ModelRequest
from services.orchestrator.models.timing import CallClock

log = logging.getLogger(__name__)

# Returns the settings of a model by id, or None when it is not in the catalogue.
Describe = Callable[[str], ModelSettings | None]


class Traced:
    """The outermost layer: a `ChatModel` that starts the clock of each call and tells what it measured.

    The span is current for nobody: it would leak over the `yield`s. Its parent is the context of who iterates first.
    """

    def __init__(self, inner: TimedModel, telemetry: Telemetry, clock: Clock, describe: Describe) -> None:
        self._inner = inner
        self._tracer = telemetry.tracer(__name__)
        self._content = telemetry.content
        self._later = telemetry.later
        self._metrics = CallMetrics(telemetry, __name__)
        self._clock = clock
        self._describe = describe

    async def stream(self, request: ModelRequest) -> Events:
        """Yield the inner model's events; the reply comes after everything is measured."""
        call = CallClock(self._clock)
        span = self._tracer.start_span(
            f"{names.SPAN_CHAT} {request.model}", kind=SpanKind.CLIENT, start_time=_nanoseconds(call.started_at)
        )
        reply: ModelReply | None = None
        # Read once: what span, metrics, log and journal tell is the same.
        timing: CallTiming | None = None
        error = "cancelled"
        try:
            async with aclosing(self._inner.stream(request, call)) as events:
                async for event in events:
                    if isinstance(event, ModelReply):
                        reply = event
                    else:
                        yield event
            error = ""
        except ServiceError as failure:
            error = failure.reason
            if isinstance(failure, ModelError):
                timing = failure.timing = call.timing()
            raise
        finally:
            timing = timing or call.timing()
            self._later(self._tell, request, call, timing, span, reply, error)
        if reply is not None:
            yield replace(reply, timing=timing)

    def _tell(
        self,
        request: ModelRequest,
        call: CallClock,
        timing: CallTiming,
        span: Span,
        reply: ModelReply | None,
        error: str,
    ) -> None:
        served_by = call.attempts[-1].model if call.attempts else request.model
        settings = self._describe(served_by)
        provider = settings.provider if settings else "unknown"
        upstream = settings.upstream_name if settings else request.model
        shared: dict[str, str | bool] = {
            names.GEN_AI_OPERATION_NAME: "chat",
            names.GEN_AI_PROVIDER_NAME: provider,
            names.GEN_AI_REQUEST_MODEL: upstream,
        }
        if error:
            shared[names.ERROR_TYPE] = error
        self._metrics.record(request, call, timing, reply, shared)
        for attempt in call.attempts:
            # A client that leaves is no failure of the model.
            if attempt.error and attempt.error != "cancelled":
                self._metrics.attempt_failed(self._upstream(attempt.model), attempt.error)
        self._finish_span(request, call, timing, span, reply, shared, settings)
        self._log(request, call, timing, reply, served_by, error)

    def _upstream(self, model: str) -> str:
        settings = self._describe(model)
        return settings.upstream_name if settings else model

    def _finish_span(
        self,
        request: ModelRequest,
        call: CallClock,
        timing: CallTiming,
        span: Span,
        reply: ModelReply | None,
        shared: dict[str, str | bool],
        settings: ModelSettings | None,
    ) -> None:
        ended = _nanoseconds(timing.started_at + timing.queued + timing.total)
        if span.is_recording():
            span.set_attributes(shared)
            span.set_attributes(
                {
                    names.GEN_AI_REQUEST_STREAM: True,
                    names.LLM_PURPOSE: request.purpose.value,
                    names.LLM_RETRIES: timing.attempts - 1,
                    names.LLM_QUEUE_TIME: timing.queued.total_seconds(),
                    names.LLM_STALL_MAX: call.longest_stall,
                }
            )
            _describe_request(span, request, settings)
            if call.first is not None:
                span.set_attribute(names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, call.first)
            if reply is not None:
                _describe_reply(span, reply)
            if self._content:
                span.set_attributes(request_content(request) | (reply_content(reply) if reply else {}))
            self._attempt_spans(call, span, ended)
        if names.ERROR_TYPE in shared:
            span.set_status(Status(StatusCode.ERROR, str(shared[names.ERROR_TYPE])))
        span.end(ended)

    def _attempt_spans(self, call: CallClock, parent: Span, ended: int) -> None:
        context: Context = set_span_in_context(parent)
        for number, attempt in enumerate(call.attempts, start=1):
            span = self._tracer.start_span(
                f"{names.SPAN_CHAT_ATTEMPT} {number}",
                context=context,
                kind=SpanKind.INTERNAL,
                start_time=_nanoseconds(call.at(attempt.started)),
                attributes={names.GEN_AI_REQUEST_MODEL: attempt.model},
            )
            if attempt.first is not None:
                span.set_attribute(names.GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK, attempt.first - attempt.started)
            if attempt.error:
                span.set_attribute(names.ERROR_TYPE, attempt.error)
                span.set_status(Status(StatusCode.ERROR, attempt.error))
            span.end(ended if attempt.ended is None else _nanoseconds(call.at(attempt.ended)))

    def _log(
        self,
        request: ModelRequest,
        call: CallClock,
        timing: CallTiming,
        reply: ModelReply | None,
        served_by: str,
        error: str,
    ) -> None:
        log.log(
            logging.WARNING if error and error != "cancelled" else logging.INFO,
            "model call %s",
            f"failed: {error}" if error else "finished",
            extra={
                "event": names.EVENT_MODEL_CALL,
                "model": served_by,
                "model_call_id": request.call_id,
                "purpose": request.purpose.value,
                "time_to_first_chunk": call.first,
                "total": timing.total.total_seconds(),
                "queued": timing.queued.total_seconds(),
                "longest_stall": call.longest_stall,
                "retries": timing.attempts - 1,
                "fallback_from": reply.fallback_from if reply else "",
                "cost_micros": reply.usage.cost_micros if reply else 0,
                "finish_reason": reply.finish_reason if reply else "",
                "input_tokens": reply.usage.input_tokens if reply else 0,
                "output_tokens": reply.usage.output_tokens if reply else 0,
                "error": error,
            },
        )


def _describe_request(span: Span, request: ModelRequest, settings: ModelSettings | None) -> None:
    sampling = request.sampling
    if request.conversation_id:
        span.set_attribute(names.GEN_AI_CONVERSATION_ID, request.conversation_id)
    if sampling.temperature is not None:
        span.set_attribute(names.GEN_AI_REQUEST_TEMPERATURE, sampling.temperature)
    if sampling.max_output_tokens is not None:
        span.set_attribute(names.GEN_AI_REQUEST_MAX_TOKENS, sampling.max_output_tokens)
    if settings is not None and settings.base_url:
        server = urlsplit(settings.base_url)
        span.set_attribute(names.SERVER_ADDRESS, server.hostname or "")
        span.set_attribute(names.SERVER_PORT, server.port or (80 if server.scheme == "http" else 443))


def _describe_reply(span: Span, reply: ModelReply) -> None:
    usage = reply.usage
    span.set_attributes(
        {
            names.GEN_AI_RESPONSE_MODEL: reply.model,
            names.GEN_AI_RESPONSE_ID: reply.response_id,
            names.GEN_AI_RESPONSE_FINISH_REASONS: (reply.finish_reason,),
            names.GEN_AI_USAGE_INPUT: usage.input_tokens,
            names.GEN_AI_USAGE_OUTPUT: usage.output_tokens,
            names.GEN_AI_USAGE_CACHE_READ: usage.cached_input_tokens,
            names.GEN_AI_USAGE_REASONING: usage.reasoning_tokens,
            names.LLM_FALLBACK_FROM: reply.fallback_from,
        }
    )


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * 1e9)

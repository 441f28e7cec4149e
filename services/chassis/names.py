"""Every name we emit: spans, attributes, instruments, log events. A change of convention is a change of this file.

`gen_ai.*`, `rpc.*` and `mcp.*` are OpenTelemetry's semantic conventions, GenAI's still in development.
Ours begin with `proctor.`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

# --- Spans -----------------------------------------------------------------------------------------------------------
# These take the name of what they act on: `invoke_agent handbook`, `chat gpt-5`, `chat attempt 2`.
SPAN_INVOKE_AGENT: Final = "invoke_agent"
SPAN_CHAT: Final = "chat"
SPAN_CHAT_ATTEMPT: Final = "chat attempt"
SPAN_EXECUTE_TOOL: Final = "execute_tool"
SPAN_RETRIEVAL: Final = "retrieval"
SPAN_EMBEDDINGS: Final = "embeddings"
# MCP's convention: the method, then the server's name of the tool.
SPAN_MCP_CALL: Final = "tools/call"
# These stand alone.
SPAN_APPROVAL_WAIT: Final = "proctor.approval.wait"
SPAN_SANDBOX_EXECUTE: Final = "proctor.sandbox.execute"

# --- Attributes: OpenTelemetry ---------------------------------------------------------------------------------------
ERROR_TYPE: Final = "error.type"
GEN_AI_AGENT_ID: Final = "gen_ai.agent.id"
GEN_AI_AGENT_NAME: Final = "gen_ai.agent.name"
GEN_AI_CONVERSATION_ID: Final = "gen_ai.conversation.id"
GEN_AI_DATA_SOURCE_ID: Final = "gen_ai.data_source.id"
GEN_AI_INPUT_MESSAGES: Final = "gen_ai.input.messages"
GEN_AI_OPERATION_NAME: Final = "gen_ai.operation.name"
GEN_AI_OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
GEN_AI_PROVIDER_NAME: Final = "gen_ai.provider.name"
GEN_AI_REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
GEN_AI_REQUEST_MODEL: Final = "gen_ai.request.model"
GEN_AI_REQUEST_STREAM: Final = "gen_ai.request.stream"
GEN_AI_REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
GEN_AI_RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
GEN_AI_RESPONSE_ID: Final = "gen_ai.response.id"
GEN_AI_RESPONSE_MODEL: Final = "gen_ai.response.model"
GEN_AI_RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"
GEN_AI_RETRIEVAL_TOP_K: Final = "gen_ai.retrieval.top_k"
GEN_AI_SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
GEN_AI_TOKEN_TYPE: Final = "gen_ai.token.type"  # noqa: S105
GEN_AI_TOOL_CALL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
GEN_AI_TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
GEN_AI_TOOL_CALL_RESULT: Final = "gen_ai.tool.call.result"
GEN_AI_TOOL_NAME: Final = "gen_ai.tool.name"
GEN_AI_TOOL_TYPE: Final = "gen_ai.tool.type"
GEN_AI_USAGE_CACHE_READ: Final = "gen_ai.usage.cache_read.input_tokens"
GEN_AI_USAGE_INPUT: Final = "gen_ai.usage.input_tokens"
GEN_AI_USAGE_OUTPUT: Final = "gen_ai.usage.output_tokens"
GEN_AI_USAGE_REASONING: Final = "gen_ai.usage.reasoning.output_tokens"
HTTP_REQUEST_METHOD: Final = "http.request.method"
HTTP_RESPONSE_STATUS_CODE: Final = "http.response.status_code"
HTTP_ROUTE: Final = "http.route"
MCP_METHOD_NAME: Final = "mcp.method.name"
RPC_METHOD: Final = "rpc.method"
RPC_RESPONSE_STATUS_CODE: Final = "rpc.response.status_code"
RPC_SYSTEM_NAME: Final = "rpc.system.name"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
SERVICE_NAME: Final = "service.name"
SERVICE_VERSION: Final = "service.version"

# --- Attributes: ours ------------------------------------------------------------------------------------------------
APPROVAL_KIND: Final = "proctor.approval.kind"
APPROVAL_OUTCOME: Final = "proctor.approval.outcome"
BUDGET_KIND: Final = "proctor.budget.kind"
EMBEDDINGS_BATCH_SIZE: Final = "proctor.embeddings.batch_size"
GUARDRAIL_ACTION: Final = "proctor.guardrail.action"
GUARDRAIL_NAME: Final = "proctor.guardrail.name"
GUARDRAIL_STAGE: Final = "proctor.guardrail.stage"
LLM_FALLBACK_FROM: Final = "proctor.llm.fallback_from"
LLM_PHASE: Final = "proctor.llm.phase"
LLM_PURPOSE: Final = "proctor.llm.purpose"
LLM_QUEUE_TIME: Final = "proctor.llm.queue_time"
LLM_RETRIES: Final = "proctor.llm.retries"
LLM_STALL_MAX: Final = "proctor.llm.stall_max"
MCP_SERVER: Final = "proctor.mcp.server"
QUOTA_KIND: Final = "proctor.quota.kind"
RETRIEVAL_BEST_SCORE: Final = "proctor.retrieval.best_score"
RETRIEVAL_HITS_COUNT: Final = "proctor.retrieval.hits_count"
RETRIEVAL_STAGES: Final = "proctor.retrieval.stages"
RUN_ATTEMPT: Final = "proctor.run.attempt"
RUN_ID: Final = "proctor.run.id"
RUN_OUTCOME: Final = "proctor.run.outcome"
RUN_QUEUED: Final = "proctor.run.queued"
SANDBOX_CPU: Final = "proctor.sandbox.cpu"
SANDBOX_PEAK_MEMORY: Final = "proctor.sandbox.peak_memory"
SANDBOX_QUEUE: Final = "proctor.sandbox.queue"
SANDBOX_STATUS: Final = "proctor.sandbox.status"
SANDBOX_WALL: Final = "proctor.sandbox.wall"
SANDBOX_WARM: Final = "proctor.sandbox.warm"
STREAM_MESSAGES: Final = "proctor.stream.messages"
STREAM_TIME_TO_FIRST_MESSAGE: Final = "proctor.stream.time_to_first_message"
TENANT: Final = "proctor.tenant"
TOOL_OUTCOME: Final = "proctor.tool.outcome"
TOOL_RESULT_BYTES: Final = "proctor.tool.result_bytes"

# --- Log events ------------------------------------------------------------------------------------------------------
EVENT_APPROVAL_DECIDED: Final = "approval.decided"
EVENT_GUARDRAIL_ACTED: Final = "guardrail.acted"
EVENT_MODEL_CALL: Final = "model.call"
EVENT_RETRIEVAL_SEARCHED: Final = "retrieval.searched"
EVENT_ROUTE_DECIDED: Final = "route.decided"
EVENT_RPC_FAILED: Final = "rpc.failed"
EVENT_RUN_COMPLETED: Final = "run.completed"
EVENT_RUN_PAUSED: Final = "run.paused"
EVENT_RUN_RECOVERED: Final = "run.recovered"
EVENT_RUN_RESUMED: Final = "run.resumed"
EVENT_RUN_STARTED: Final = "run.started"
EVENT_RUN_TOOLS: Final = "run.tools"
EVENT_SANDBOX_FINISHED: Final = "sandbox.finished"
EVENT_SERVICE_DRAINING: Final = "service.draining"
EVENT_SERVICE_SERVING: Final = "service.serving"
EVENT_SERVICE_STOPPED: Final = "service.stopped"
EVENT_TOOL_FINISHED: Final = "tool.finished"


# --- Instruments -----------------------------------------------------------------------------------------------------
@dataclass(frozen=True, slots=True, kw_only=True)
class Instrument:
    """One metric: its name, UCUM unit, meaning and the attributes it may carry. Histograms also fix their buckets."""

    name: str
    unit: str
    description: str
    attributes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Counted(Instrument):
    """A sum that only grows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpDown(Instrument):
    """A sum that goes up and down."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured(Instrument):
    """A distribution with the upper bounds of its buckets."""

    buckets: tuple[float, ...]


# The conventions stop at 81.92 s; a call here may last 300 s, so two more doublings follow.
CALL_BUCKETS: Final = tuple(0.01 * 2**n for n in range(16))
AGENT_BUCKETS: Final = tuple(0.1 * 2**n for n in range(13))
TOKEN_BUCKETS: Final = tuple(float(4**n) for n in range(14))
# `rpc.*.call.duration` and `http.server.request.duration`, as the conventions advise.
RPC_BUCKETS: Final = (0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)
# People decide within seconds or within a day.
DECISION_BUCKETS: Final = (1.0, 5.0, 15.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3600.0, 14400.0, 43200.0, 86400.0)
SCORE_BUCKETS: Final = tuple(n / 10 for n in range(1, 11))
HITS_BUCKETS: Final = (0.0, 1.0, 2.0, 3.0, 6.0, 12.0, 24.0)

_MODEL_CALL: Final = (GEN_AI_OPERATION_NAME, GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_MODEL, ERROR_TYPE)
_RPC: Final = (RPC_SYSTEM_NAME, RPC_METHOD)

HTTP_SERVER_DURATION: Final = Measured(
    name="http.server.request.duration",
    unit="s",
    description="Time of one HTTP exchange of the gateway; a stream's is as long as the stream.",
    buckets=RPC_BUCKETS,
    attributes=(HTTP_REQUEST_METHOD, HTTP_ROUTE, HTTP_RESPONSE_STATUS_CODE, ERROR_TYPE),
)
HTTP_SERVER_ACTIVE: Final = UpDown(
    name="http.server.active_requests",
    unit="{request}",
    description="HTTP exchanges that are open now.",
    attributes=(HTTP_REQUEST_METHOD,),
)
MODEL_CALL_DURATION: Final = Measured(
    name="gen_ai.client.operation.duration",
    unit="s",
    description="Time of one logical model call, retries included.",
    buckets=CALL_BUCKETS,
    attributes=_MODEL_CALL,
)
MODEL_TIME_TO_FIRST_CHUNK: Final = Measured(
    name="gen_ai.client.operation.time_to_first_chunk",
    unit="s",
    description="Time from the start of the logical call to its first non-empty fragment.",
    buckets=CALL_BUCKETS,
    attributes=_MODEL_CALL,
)
MODEL_TIME_PER_OUTPUT_CHUNK: Final = Measured(
    name="gen_ai.client.operation.time_per_output_chunk",
    unit="s",
    description="Time between two fragments after the first.",
    buckets=CALL_BUCKETS,
    attributes=_MODEL_CALL,
)
MODEL_TOKEN_USAGE: Final = Measured(
    name="gen_ai.client.token.usage",
    unit="{token}",
    description="Tokens of one model call, by gen_ai.token.type.",
    buckets=TOKEN_BUCKETS,
    attributes=(*_MODEL_CALL, GEN_AI_TOKEN_TYPE),
)
MODEL_PHASE_DURATION: Final = Measured(
    name="proctor.llm.phase.duration",
    unit="s",
    description="Where a model call's time goes, by proctor.llm.phase: queue, retry, first_chunk, generation.",
    buckets=CALL_BUCKETS,
    attributes=(GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_MODEL, LLM_PHASE),
)
MODEL_STALL: Final = Measured(
    name="proctor.llm.stall.duration",
    unit="s",
    description="Longest silence of a model call after its first fragment.",
    buckets=CALL_BUCKETS,
    attributes=(GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_MODEL),
)
MODEL_ATTEMPTS_FAILED: Final = Counted(
    name="proctor.llm.failed_attempts",
    unit="{attempt}",
    description="Attempts of model calls that failed, whether or not a later one succeeded.",
    attributes=(GEN_AI_REQUEST_MODEL, ERROR_TYPE),
)
MODEL_CACHED_INPUT: Final = Counted(
    name="proctor.llm.cached_input_tokens",
    unit="{token}",
    description="Input tokens that the provider read from its cache; they are among the input tokens, too.",
    attributes=(GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_MODEL),
)
MODEL_COST: Final = Counted(
    name="proctor.llm.cost",
    unit="{currency}",
    description="What model calls cost by the prices of the catalogue, in their currency.",
    attributes=(GEN_AI_PROVIDER_NAME, GEN_AI_REQUEST_MODEL, LLM_PURPOSE),
)
TOOL_DURATION: Final = Measured(
    name="gen_ai.execute_tool.duration",
    unit="s",
    description="Time a tool worked, without waiting for people.",
    buckets=CALL_BUCKETS,
    attributes=(GEN_AI_TOOL_NAME, TOOL_OUTCOME),
)
AGENT_DURATION: Final = Measured(
    name="gen_ai.invoke_agent.duration",
    unit="s",
    description="Time of one leg of a run.",
    buckets=AGENT_BUCKETS,
    attributes=(GEN_AI_AGENT_NAME, RUN_OUTCOME),
)
RPC_SERVER_DURATION: Final = Measured(
    name="rpc.server.call.duration",
    unit="s",
    description="Time of one served call.",
    buckets=RPC_BUCKETS,
    attributes=(*_RPC, RPC_RESPONSE_STATUS_CODE, ERROR_TYPE),
)
RPC_CLIENT_DURATION: Final = Measured(
    name="rpc.client.call.duration",
    unit="s",
    description="Time of one outgoing call.",
    buckets=RPC_BUCKETS,
    attributes=(*_RPC, RPC_RESPONSE_STATUS_CODE, ERROR_TYPE),
)
RPC_SERVER_FIRST_MESSAGE: Final = Measured(
    name="proctor.rpc.server.time_to_first_message",
    unit="s",
    description="Time from the start of a served stream to its first message.",
    buckets=RPC_BUCKETS,
    attributes=(RPC_METHOD,),
)
RUNS: Final = Counted(
    name="proctor.runs", unit="{run}", description="Runs by proctor.run.outcome.", attributes=(RUN_OUTCOME,)
)
RUNS_QUEUE_DURATION: Final = Measured(
    name="proctor.runs.queue.duration",
    unit="s",
    description="Time that a leg of a run waited for a place to work.",
    buckets=CALL_BUCKETS,
)
RUNS_ACTIVE: Final = UpDown(name="proctor.runs.active", unit="{run}", description="Runs that work now.")
APPROVALS: Final = Counted(
    name="proctor.approvals",
    unit="{approval}",
    description="Approvals by outcome.",
    attributes=(APPROVAL_OUTCOME, APPROVAL_KIND),
)
APPROVALS_PENDING: Final = UpDown(name="proctor.approvals.pending", unit="{approval}", description="Waiting now.")
APPROVALS_OLDEST_AGE: Final = UpDown(
    name="proctor.approvals.oldest.age", unit="s", description="How long the oldest of those has waited."
)
APPROVAL_DECISION_DURATION: Final = Measured(
    name="proctor.approvals.decision.duration",
    unit="s",
    description="Time from request to decision.",
    buckets=DECISION_BUCKETS,
    attributes=(APPROVAL_OUTCOME, APPROVAL_KIND),
)
STREAMS_RESUMED: Final = Counted(name="proctor.streams.resumed", unit="{stream}", description="Streams taken up again.")
STREAMS_GAPS: Final = Counted(name="proctor.streams.gaps", unit="{stream}", description="Cursors no longer kept.")
STREAMS_REPLAYED: Final = Counted(
    name="proctor.streams.replayed_events", unit="{event}", description="Events sent again from the journal."
)
STREAMS_SLOW: Final = Counted(
    name="proctor.streams.slow_consumers", unit="{stream}", description="Readers that fell behind the live tail."
)
LEASES_LOST: Final = Counted(name="proctor.leases.lost", unit="{lease}", description="Leases lost while owned.")
LEASES_RECOVERED: Final = Counted(
    name="proctor.leases.recovered", unit="{lease}", description="Runs taken over from another owner."
)
LEASES_FENCED: Final = Counted(
    name="proctor.leases.fenced_writes", unit="{write}", description="Writes refused for an old epoch."
)
RETRIEVAL_DURATION: Final = Measured(
    name="proctor.retrieval.duration", unit="s", description="Time of one search.", buckets=CALL_BUCKETS
)
RETRIEVAL_HITS: Final = Measured(
    name="proctor.retrieval.hits", unit="{hit}", description="Hits returned by one search.", buckets=HITS_BUCKETS
)
RETRIEVAL_EMPTY: Final = Counted(
    name="proctor.retrieval.empty", unit="{search}", description="Searches that found nothing."
)
RETRIEVAL_SCORE: Final = Measured(
    name="proctor.retrieval.score", unit="1", description="Best calibrated score of a search.", buckets=SCORE_BUCKETS
)
SANDBOX_START_DURATION: Final = Measured(
    name="proctor.sandbox.start.duration",
    unit="s",
    description="Time from Execute to running code.",
    buckets=CALL_BUCKETS,
    attributes=(SANDBOX_WARM,),
)
SANDBOX_OUTCOME: Final = Counted(
    name="proctor.sandbox.outcome",
    unit="{execution}",
    description="Executions by proctor.sandbox.status.",
    attributes=(SANDBOX_STATUS,),
)
SANDBOX_POOL_IDLE: Final = UpDown(
    name="proctor.sandbox.pool.idle", unit="{worker}", description="Warm workers that wait."
)
GUARDRAIL_ACTIONS: Final = Counted(
    name="proctor.guardrail.actions",
    unit="{action}",
    description="What guardrails did: changed, refused, failed_open, failed_closed.",
    attributes=(GUARDRAIL_NAME, GUARDRAIL_STAGE, GUARDRAIL_ACTION),
)
BUDGET_EXHAUSTED: Final = Counted(
    name="proctor.budget.exhausted",
    unit="{run}",
    description="Runs that met a cap, by proctor.budget.kind.",
    attributes=(BUDGET_KIND,),
)
QUOTA_REJECTED: Final = Counted(
    name="proctor.quota.rejected",
    unit="{run}",
    description="Runs refused, by proctor.quota.kind.",
    attributes=(QUOTA_KIND,),
)

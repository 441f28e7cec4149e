// The pure fold from run events to what is shown of a run. No DOM, no clock, no network.
//
// A view is never changed in place: parts that an event does not touch keep their identity, so that rendering can skip
// them by comparing references. Unknown kinds only move `sequence`; events already seen change nothing.

import { bare, embedded, integer, millis, seconds } from "./wire.js";

/** The view of a run of which nothing is known yet. */
export const EMPTY_RUN = Object.freeze({
  runId: "", conversationId: "", agent: "", model: "", question: "", traceId: "", userMessageId: "",
  sequence: 0, attempt: 0, startedAt: null, endedAt: null,
  phase: "starting", // starting · running · waiting · completed · failed · cancelled
  stage: null, // { name, text, at }
  entries: Object.freeze([]), // what happened, in order: thinking, text, call, notice, step, …
  calls: Object.freeze({}), approvals: Object.freeze({}), steps: Object.freeze({}),
  evidence: Object.freeze([]), artifacts: Object.freeze([]), modelCalls: Object.freeze([]),
  plan: null, route: null, paused: null, result: null, failure: null, cancelledBy: "",
});

export const TERMINAL = new Set(["completed", "failed", "cancelled"]);

/** Folds one event into a view. */
export function fold(view, event) {
  const sequence = integer(event.sequence);
  if (sequence !== 0 && sequence <= view.sequence) return view;
  const at = millis(event.at);
  const base = { ...view, sequence, runId: event.run_id || view.runId, attempt: event.attempt || view.attempt };
  const kind = eventKind(event);
  return kind ? HANDLERS[kind](base, event[kind] ?? {}, { at, stepId: event.step_id ?? "" }) : base;
}

/** The kind of an event (`answer_delta`, …), or undefined when this page does not know it. */
export function eventKind(event) {
  return Object.keys(event).find((key) => Object.hasOwn(HANDLERS, key));
}

/** The answer as shown now: the final text, else the text that no later call made a remark on the way. */
export function answerText(view) {
  if (view.result?.text) return view.result.text;
  const lastCall = view.entries.findLastIndex((entry) => entry.kind === "call" && !entry.stepId);
  return view.entries
    .slice(lastCall + 1)
    .filter((entry) => entry.kind === "text" && !entry.stepId && !entry.retracted)
    .map((entry) => entry.text)
    .join("\n\n");
}

/** Approvals that wait for a person, oldest first. */
export function pendingApprovals(view) {
  return TERMINAL.has(view.phase) ? [] : Object.values(view.approvals).filter((item) => item.state === "pending");
}

const HANDLERS = {
  run_started: (view, e, { at }) => ({
    ...view, phase: "running", startedAt: at, conversationId: e.conversation_id ?? "", agent: e.agent_name ?? "",
    model: e.model ?? "", question: e.question || view.question, traceId: e.trace_id ?? "",
    userMessageId: e.user_message_id ?? "",
  }),
  stage_changed(view, e, { at, stepId }) {
    const name = bare(e.stage, "STAGE_");
    const stage = { name, text: e.text ?? "", at };
    // Steps of a plan work side by side: their stages would alternate in the one line there is for them.
    const shown = view.steps[stepId]?.kind === "research" ? view.stage : stage;
    const next = { ...view, stage: shown, phase: name === "waiting" ? "waiting" : "running" };
    return name === "retrieving" ? push(next, { kind: "stage", ...stage, stepId }) : next;
  },
  route_decided: (view, e, { at }) => {
    const route = { scores: e.scores ?? [], choice: e.choice ?? "", why: e.explanation ?? "", took: seconds(e.duration) };
    return push({ ...view, route }, { kind: "route", at, ...route });
  },
  thinking_delta: (view, e, meta) => appendText(view, "thinking", e, meta),
  answer_delta: (view, e, meta) => appendText(view, "text", e, meta),
  answer_retracted(view, e, { at, stepId }) {
    const entries = view.entries
      .filter((entry) => !(entry.kind === "thinking" && entry.modelCallId === e.model_call_id))
      .map((entry) => (entry.kind === "text" && entry.modelCallId === e.model_call_id ? { ...entry, retracted: true } : entry));
    const calls = Object.fromEntries(
      Object.entries(view.calls).filter(([, call]) => !(call.state === "writing" && call.modelCallId === e.model_call_id)),
    );
    const kept = entries.filter((entry) => entry.kind !== "call" || Object.hasOwn(calls, entry.callId));
    return push({ ...view, entries: kept, calls }, { kind: "retracted", at, text: e.reason ?? "", stepId });
  },
  tool_call_delta(view, e, { at, stepId }) {
    const known = view.calls[e.call_id];
    const written = (known?.written ?? "") + (e.arguments_fragment ?? "");
    return putCall(view, e.call_id, { state: "writing", written, modelCallId: e.model_call_id }, e.name, { at, stepId });
  },
  tool_call_proposed(view, e, { at, stepId }) {
    const call = e.call ?? {};
    const change = {
      state: "proposed", round: e.round ?? 0, title: e.title ?? "", reason: call.reason ?? "",
      arguments: embedded(call.arguments_json), malformed: call.malformed_arguments ?? "",
    };
    return putCall(view, call.call_id, change, call.name, { at, stepId });
  },
  tool_call_started: (view, e, meta) =>
    putCall(view, e.call_id, { state: "running", arguments: embedded(e.arguments_json), startedAt: meta.at }, e.name, meta),
  tool_call_progress(view, e, meta) {
    const output = view.calls[e.call_id]?.output ?? [];
    const stream = bare(e.stream, "PROGRESS_STREAM_");
    const last = output.at(-1);
    const joined = last?.stream === stream
      ? [...output.slice(0, -1), { stream, text: last.text + (e.text ?? "") }]
      : [...output, { stream, text: e.text ?? "" }];
    return putCall(view, e.call_id, { output: joined, fraction: e.fraction ?? null }, "", meta);
  },
  tool_call_finished(view, e, meta) {
    const change = {
      state: bare(e.status, "TOOL_STATUS_"), preview: e.preview ?? "", took: seconds(e.duration), endedAt: meta.at,
      bytes: integer(e.result_bytes), truncated: Boolean(e.truncated),
    };
    const next = putCall(view, e.call_id, change, e.name, meta);
    return (e.artifacts ?? []).reduce((all, artifact) => addArtifact(all, artifact, e.call_id), next);
  },
  approval_requested: (view, e, meta) =>
    putApproval(view, e.approval_id, {
      kind: "tool", state: "pending", callId: e.call_id, tool: e.tool ?? "", arguments: embedded(e.arguments_json),
      digest: e.arguments_digest ?? "", reason: e.reason ?? "", deadline: millis(e.deadline), askedAt: meta.at,
      policy: e.policy ?? "", parameters: embedded(e.parameters_json),
    }),
  approval_resolved: (view, e) =>
    putApproval(view, e.approval_id, {
      state: bare(e.resolution, "RESOLUTION_"), decidedBy: e.decided_by ?? "", comment: e.comment ?? "",
      edited: embedded(e.edited_arguments_json), waited: seconds(e.waited), callId: e.call_id,
    }),
  questions_asked: (view, e, meta) =>
    putApproval(push(view, { kind: "questions", approvalId: e.approval_id, at: meta.at, stepId: meta.stepId }), e.approval_id, {
      kind: "question", state: "pending", callId: e.call_id ?? "", questions: embedded(e.questions_json) ?? [],
      deadline: millis(e.deadline), askedAt: meta.at,
    }),
  questions_answered: (view, e) =>
    putApproval(view, e.approval_id, { state: "answered", answers: embedded(e.answers_json), skipped: Boolean(e.skipped) }),
  client_tool_requested: (view, e, { at, stepId }) =>
    putCall(view, e.call?.call_id, { state: "client", arguments: embedded(e.call?.arguments_json) }, e.call?.name, { at, stepId }),
  evidence_added(view, e) {
    const item = readEvidence(e.evidence ?? {}, e.call_id);
    if (view.evidence.some((known) => known.number === item.number)) return view;
    return { ...view, evidence: [...view.evidence, item].sort((a, b) => a.number - b.number) };
  },
  artifact_created: (view, e) => addArtifact(view, e.artifact ?? {}, e.call_id),
  plan_made: (view, e, { at }) => {
    const steps = (e.steps ?? []).map((step) => ({ stepId: step.step_id ?? "", title: step.title ?? "" }));
    return push({ ...view, plan: { complexity: e.complexity ?? "", steps } }, { kind: "plan", at, steps });
  },
  step_started(view, e, { at, stepId }) {
    const known = view.steps[e.step_id];
    const step = { stepId: e.step_id, title: e.title ?? "", kind: e.kind ?? "", state: "running", at };
    const next = { ...view, steps: { ...view.steps, [e.step_id]: { ...known, ...step } } };
    if (known) return next; // begun anew after a take-over
    return push(next, { kind: "step", step: e.step_id, at, stepId: stepId === e.step_id ? "" : stepId });
  },
  step_finished(view, e) {
    const change = { stepId: e.step_id, state: e.failed ? "failed" : "completed", summary: e.summary ?? "", took: seconds(e.duration) };
    return { ...view, steps: { ...view.steps, [e.step_id]: { title: "", kind: "", ...view.steps[e.step_id], ...change } } };
  },
  model_call_finished: (view, e, { at, stepId }) => ({ ...view, modelCalls: [...view.modelCalls, readModelCall(e, at, stepId)] }),
  history_compacted: (view, e, { at }) =>
    push(view, { kind: "compacted", at, before: integer(e.tokens_before), after: integer(e.tokens_after), messages: e.messages ?? 0 }),
  notice: (view, e, { at, stepId }) => push(view, { kind: "notice", at, code: e.code ?? "", text: e.text ?? "", stepId }),
  run_paused(view, e, { at }) {
    const paused = { at, deadline: millis(e.deadline), pending: e.pending ?? [] };
    // A run that waits for a message has no event of its own for it: the pause says so.
    const waiting = paused.pending.filter((call) => bare(call.kind, "PAUSE_KIND_") === "continue");
    return waiting.reduce(
      (next, call) => putApproval(next, call.approval_id || call.call_id, {
        kind: "continue", state: "pending", callId: call.call_id, tool: call.tool ?? "", reason: next.calls[call.call_id]?.reason ?? "",
        deadline: paused.deadline, askedAt: at,
      }),
      { ...view, phase: "waiting", paused },
    );
  },
  // The stage said "waiting"; what comes next has no stage of its own until the model speaks again.
  run_resumed: (view, _, { at }) => ({ ...view, phase: "running", paused: null, stage: view.stage?.name === "waiting" ? { name: "calling_tools", text: "", at } : view.stage }),
  run_completed: (view, e, meta) =>
    finish(view, "completed", meta, {
      text: e.text ?? "", messageId: e.message_id ?? "", citations: e.citations, usage: e.usage, spent: e.spent,
      value: embedded(e.value_json), finishReason: e.finish_reason ?? "",
    }),
  run_failed: (view, e, meta) => ({
    ...finish(view, "failed", meta, { text: e.partial_text ?? "", messageId: e.message_id ?? "", citations: e.citations, usage: e.usage }),
    failure: { reason: e.reason ?? "", message: e.message ?? "", retryable: Boolean(e.retryable) },
  }),
  run_cancelled: (view, e, meta) => ({
    ...finish(view, "cancelled", meta, { text: e.partial_text ?? "", messageId: e.message_id ?? "", citations: e.citations, usage: e.usage }),
    cancelledBy: e.cancelled_by ?? "",
  }),
};

function push(view, entry) {
  return { ...view, entries: [...view.entries, entry] };
}

function appendText(view, kind, e, { at, stepId }) {
  const entries = view.entries;
  const index = entries.findLastIndex(
    (entry) => entry.kind === kind && entry.modelCallId === (e.model_call_id ?? "") && !entry.retracted,
  );
  // Steps work side by side: what another one does between two pieces does not part them.
  const open = index >= 0 && entries.slice(index + 1).every((entry) => entry.kind === "text" || entry.kind === "thinking" || (stepId && entry.stepId !== stepId));
  if (!open) return push(view, { kind, modelCallId: e.model_call_id ?? "", text: e.text ?? "", at, endedAt: at, stepId });
  const joined = { ...entries[index], text: entries[index].text + (e.text ?? ""), endedAt: at };
  return { ...view, entries: entries.with(index, joined) };
}

function putCall(view, callId, change, name, { at, stepId }) {
  const known = view.calls[callId];
  const call = { callId, at, stepId, output: [], ...known, ...change, name: name || known?.name || "" };
  const next = { ...view, calls: { ...view.calls, [callId]: call } };
  return known ? next : push(next, { kind: "call", callId, at, stepId });
}

function putApproval(view, approvalId, change) {
  const approval = { approvalId, ...view.approvals[approvalId], ...change };
  return { ...view, approvals: { ...view.approvals, [approvalId]: approval } };
}

function addArtifact(view, artifact, callId) {
  const id = artifact.artifact_id ?? "";
  if (view.artifacts.some((known) => known.id === id)) return view;
  const item = { id, name: artifact.name ?? "", type: artifact.media_type ?? "", size: integer(artifact.size), callId };
  return { ...view, artifacts: [...view.artifacts, item] };
}

function readEvidence(e, callId = "") {
  return {
    number: e.number ?? 0, kind: bare(e.kind, "EVIDENCE_KIND_") || "passage", title: e.title ?? "", where: e.where ?? "",
    text: e.text ?? "", url: e.url ?? "", score: e.score ?? null, passageId: e.passage_id ?? "", sourceId: e.source_id ?? "",
    documentId: e.document_id ?? "", callId, cited: null,
  };
}

function readModelCall(e, at, stepId) {
  const usage = e.usage ?? {};
  return {
    id: e.model_call_id ?? "", purpose: e.purpose ?? "", model: e.model ?? "", fallbackFrom: e.fallback_from ?? "",
    startedAt: millis(e.started_at), endedAt: at, queued: seconds(e.queued), firstToken: seconds(e.time_to_first_token),
    total: seconds(e.total), longestStall: seconds(e.longest_stall), attempts: e.attempts ?? 1, stepId,
    input: integer(usage.input_tokens), output: integer(usage.output_tokens), cached: integer(usage.cached_input_tokens),
    finish: e.finish_reason ?? "", error: e.error ?? "",
  };
}

function finish(view, phase, { at }, result) {
  const cited = new Map((result.citations ?? []).map((item) => [item.number ?? item.evidence?.number, item]));
  const known = new Set(view.evidence.map((item) => item.number));
  const late = [...cited.values()].filter((item) => item.evidence && !known.has(item.number)).map((item) => readEvidence(item.evidence));
  const evidence = [...view.evidence, ...late]
    .map((item) => ({ ...item, cited: cited.has(item.number) ? Boolean(cited.get(item.number).cited) : false }))
    .sort((a, b) => a.number - b.number);
  return { ...view, phase, endedAt: at, evidence, result, paused: null, stage: null };
}

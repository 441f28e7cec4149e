import assert from "node:assert/strict";
import { test } from "node:test";

import { answerText, EMPTY_RUN, fold, pendingApprovals } from "../../../services/gateway/web/js/fold.js";

let sequence = 0;
const event = (kind, body = {}, more = {}) => ({ run_id: "r1", sequence: (sequence += 1), at: "2030-01-01T12:00:00Z", attempt: 1, step_id: "", [kind]: body, ...more });
const run = (...events) => events.reduce(fold, EMPTY_RUN);
const text = (words, call = "m1") => event("answer_delta", { text: words, model_call_id: call });

test("deltas of one model call become one text", () => {
  const view = run(text("one "), text("two "), text("three"));
  assert.equal(answerText(view), "one two three");
  assert.equal(view.entries.length, 1);
});

test("an event that was seen changes nothing, not even the reference", () => {
  const first = text("once");
  const view = run(first);
  assert.equal(fold(view, first), view);
});

test("a kind from the future only moves the position", () => {
  const view = run(text("kept"), event("something_new", { a: 1 }));
  assert.equal(answerText(view), "kept");
  assert.equal(view.sequence, sequence);
});

test("parts that an event does not touch keep their identity", () => {
  const before = run(event("evidence_added", { evidence: { number: 1, title: "A" } }));
  const after = fold(before, text("x"));
  assert.equal(after.evidence, before.evidence);
  assert.equal(after.calls, before.calls);
});

test("text before a call is a remark on the way, not the answer", () => {
  const view = run(text("Let me look."), event("tool_call_proposed", { call: { call_id: "c1", name: "search", arguments_json: {} } }), text("Found.", "m2"));
  assert.equal(answerText(view), "Found.");
});

test("the final text wins over what was streamed", () => {
  const view = run(text("draft"), event("run_completed", { text: "final", citations: [] }));
  assert.equal(answerText(view), "final");
  assert.equal(view.phase, "completed");
});

test("retraction withdraws text, thought and half-written calls of that model call only", () => {
  const view = run(
    text("kept", "m0"),
    event("thinking_delta", { text: "hm", model_call_id: "m1" }),
    text("gone", "m1"),
    event("tool_call_delta", { call_id: "c1", name: "search", arguments_fragment: "{", model_call_id: "m1" }),
    event("answer_retracted", { model_call_id: "m1", reason: "broke" }),
  );
  assert.equal(answerText(view), "kept");
  assert.deepEqual(Object.keys(view.calls), []);
  assert.deepEqual(view.entries.map((entry) => entry.kind), ["text", "text", "retracted"]);
});

test("text after a retraction does not join what was withdrawn", () => {
  const view = run(text("gone"), event("answer_retracted", { model_call_id: "m1", reason: "" }), text("new"));
  assert.equal(answerText(view), "new");
});

test("a call goes from fragments to its result, keeping what was known", () => {
  const view = run(
    event("tool_call_delta", { call_id: "c1", name: "run_code", arguments_fragment: '{"co' }),
    event("tool_call_delta", { call_id: "c1", name: "", arguments_fragment: 'de":1}' }),
    event("tool_call_proposed", { call: { call_id: "c1", name: "run_code", arguments_json: { code: 1 }, reason: "why" }, round: 1 }),
    event("tool_call_started", { call_id: "c1", name: "run_code", arguments_json: { code: 2 } }),
    event("tool_call_progress", { call_id: "c1", stream: "PROGRESS_STREAM_STDOUT", text: "a" }),
    event("tool_call_progress", { call_id: "c1", stream: "PROGRESS_STREAM_STDOUT", text: "b" }),
    event("tool_call_finished", { call_id: "c1", name: "run_code", status: "TOOL_STATUS_COMPLETED", preview: "ok", duration: "1.5s", artifacts: [{ artifact_id: "a" }] }),
  );
  const call = view.calls.c1;
  assert.deepEqual([call.state, call.reason, call.took, call.written], ["completed", "why", 1.5, '{"code":1}']);
  assert.deepEqual(call.arguments, { code: 2 });
  assert.deepEqual(call.output, [{ stream: "stdout", text: "ab" }]);
  assert.equal(view.artifacts.length, 1);
  assert.equal(view.entries.filter((entry) => entry.kind === "call").length, 1);
});

test("an artifact announced twice is one", () => {
  const view = run(event("artifact_created", { artifact: { artifact_id: "a" } }), event("tool_call_finished", { call_id: "c", status: "", artifacts: [{ artifact_id: "a" }] }));
  assert.equal(view.artifacts.length, 1);
});

test("pending approvals are those without a decision, and none once the run is over", () => {
  const asked = (id) => event("approval_requested", { approval_id: id, call_id: id, tool: "t", deadline: "2030-01-01T12:02:00Z" });
  const open = run(asked("a"), asked("b"), event("approval_resolved", { approval_id: "a", call_id: "a", resolution: "RESOLUTION_DENIED" }));
  assert.deepEqual(pendingApprovals(open).map((item) => item.approvalId), ["b"]);
  assert.deepEqual(pendingApprovals(fold(open, event("run_cancelled", {}))), []);
});

test("citations of the end mark evidence as cited or only read, and add what was missed", () => {
  const view = run(
    event("evidence_added", { evidence: { number: 1, title: "A" } }),
    event("evidence_added", { evidence: { number: 1, title: "A again" } }),
    event("run_completed", { text: "x", citations: [{ number: 1, cited: false }, { number: 2, cited: true, evidence: { number: 2, title: "B" } }] }),
  );
  assert.deepEqual(view.evidence.map((item) => [item.number, item.title, item.cited]), [[1, "A", false], [2, "B", true]]);
});

test("steps of a plan keep their stages, notices and withdrawn texts to themselves", () => {
  const within = (kind, body) => event(kind, body, { step_id: "one" });
  const view = run(
    event("stage_changed", { stage: "STAGE_CALLING_TOOLS", text: "Working on the steps" }),
    within("step_started", { step_id: "one", title: "One", kind: "research" }),
    within("stage_changed", { stage: "STAGE_ANSWERING", text: "Answering" }),
    within("notice", { code: "no_results", text: "Nothing." }),
    within("answer_retracted", { model_call_id: "s", reason: "broke" }),
  );
  assert.equal(view.stage.text, "Working on the steps");
  assert.deepEqual(view.entries.map((entry) => [entry.kind, entry.stepId]), [["step", ""], ["notice", "one"], ["retracted", "one"]]);
});

test("text of a research step is not the answer", () => {
  const view = run(event("answer_delta", { text: "step", model_call_id: "s" }, { step_id: "one" }), text("answer"));
  assert.equal(answerText(view), "answer");
});

test("folding in two halves equals folding at once", () => {
  const events = [event("run_started", { conversation_id: "c" }), text("a"), event("stage_changed", { stage: "STAGE_ANSWERING" }), text("b"), event("run_completed", { text: "" })];
  for (let cut = 0; cut <= events.length; cut += 1) {
    const resumed = [...events.slice(0, cut), ...events.slice(Math.max(0, cut - 2))].reduce(fold, EMPTY_RUN);
    assert.deepEqual(resumed, run(...events));
  }
});

// One row of the timeline for each kind of entry.

import { h } from "../dom.js";
import { formatSeconds, t, word } from "../i18n/index.js";
import { answeredPart } from "./answers.js";
import { callRow } from "./call.js";
import { routeScores } from "./route.js";

/** Nodes of a workflow whose summary is the result of the call that stands under them. */
const TOLD_BY_CALLS = new Set(["tool", "code", "http", "question", "approval"]);
const STEP_TONES = { completed: "done", failed: "failed" };

/** Makes the row of an item of `trailItems`. */
export function row(item) {
  return ROWS[item.entry.kind]?.(item.entry, item) ?? h("li", { hidden: true });
}

/** Whether what stands under a step says what its summary would say again. */
const tellsItself = (step, children) => children.some(({ entry }) => entry.kind === "text" || (entry.kind === "call" && TOLD_BY_CALLS.has(step.kind)));

const plain = (kind, ...children) => h("li", { class: `row row-${kind}` }, ...children);

const ROWS = {
  stage: (entry) => plain("stage", h("span", { class: "row-title" }, entry.text || word("stage", entry.name))),
  thinking(entry) {
    const time = formatSeconds(Math.max(0, (entry.endedAt ?? 0) - (entry.at ?? 0)) / 1000);
    const head = h("summary", {}, h("span", { class: "row-title" }, t("thought", { time })));
    return plain("thinking", h("details", {}, head, h("p", { class: "thought" }, entry.text)));
  },
  text: (entry) => plain("text", h("p", { class: entry.retracted ? "remark withdrawn" : "remark" }, entry.text.trim())),
  call: (entry, { call, approval }) => callRow(call, approval),
  notice: (entry) => plain("notice", h("span", { class: "row-title" }, entry.text || entry.code)),
  retracted: (entry) => plain("notice", h("span", { class: "row-title" }, entry.text ? t("retractedText", { reason: entry.text }) : t("retracted"))),
  compacted: (entry) => plain("notice", h("span", { class: "row-title" }, t("compacted", { n: entry.messages }))),
  route: (entry) => plain("stage", h("details", {}, h("summary", {}, h("span", { class: "row-title" }, entry.choice ? t("routed", { choice: entry.choice }) : t("notRouted")), h("span", { class: "row-state" }), h("span", { class: "row-time" }, formatSeconds(entry.took))), routeScores(entry, { titled: false }))),
  plan: (entry) => plain("plan", h("span", { class: "row-title" }, t("plan")), h("ol", {}, entry.steps.map((step) => h("li", {}, step.title)))),
  step: (entry, { step, children }) =>
    plain(
      `step ${STEP_TONES[step.state] ?? "busy"}`,
      h(
        "details",
        { open: step.state === "running" },
        h(
          "summary",
          {},
          h("span", { class: "row-title" }, step.title || step.stepId),
          h("span", { class: "row-state" }, step.state === "failed" ? word("call", "failed") : ""),
          h("span", { class: "row-time" }, formatSeconds(step.took)),
        ),
        children.length > 0 ? h("ol", { class: "trail" }, children.map(row)) : null,
        step.summary && (step.state === "failed" || !tellsItself(step, children)) ? h("p", { class: "remark" }, step.summary) : null,
      ),
    ),
  questions: (entry, { approval }) =>
    plain(
      `questions ${approval?.state === "pending" ? "asking" : "done"}`,
      h(
        "details",
        {},
        h("summary", {}, h("span", { class: "row-title" }, t("answerQuestions")), h("span", { class: "row-state" }, approval?.skipped ? t("skipped") : word("state", approval?.state ?? "pending"))),
        approval ? answeredPart(approval) : null,
      ),
    ),
};

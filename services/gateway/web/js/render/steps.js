// What happened on the way to an answer, as a timeline: searches, thoughts, calls, notices.

import { answerText } from "../fold.js";
import { h } from "../dom.js";
import { formatSeconds, t, word } from "../i18n/index.js";
import { callRow } from "./call.js";
import { SyncedList } from "./sync.js";

export class Steps {
  #list;
  #view = null;
  #touched = false;

  constructor() {
    this.label = h("span", { class: "steps-label" });
    this.clock = h("span", { class: "steps-clock" });
    const trail = h("ol", { class: "trail" });
    const summary = h("summary", {}, h("span", { class: "pulse", "aria-hidden": "true" }), this.label, this.clock);
    summary.addEventListener("click", () => { this.#touched = true; });
    this.element = h("details", { class: "steps", open: true }, summary, trail);
    this.#list = new SyncedList(trail, { render: (item) => row(item), same: sameItem });
  }

  update(view, running) {
    if (view === this.#view) return;
    this.#view = view;
    const items = shownItems(view);
    this.#list.update(items);
    this.element.classList.toggle("running", running);
    this.element.classList.toggle("empty", items.length === 0);
    this.element.hidden = !running && items.length === 0;
    this.label.textContent = running ? stageText(view) : summaryText(view, items.length);
    if (!running && !this.#touched) this.element.open = false;
    this.tick(null);
  }

  /** Shows the time since the start, given the server's clock now. */
  tick(now) {
    const view = this.#view;
    if (!view?.startedAt) return;
    const end = view.endedAt ?? now;
    if (end) this.clock.textContent = formatSeconds(Math.max(0, end - view.startedAt) / 1000);
  }
}

export function stageText(view) {
  if (view.phase === "starting") return t("stage.starting");
  if (!view.stage) return t("working");
  return view.stage.text || word("stage", view.stage.name);
}

function summaryText(view, count) {
  const read = view.evidence.length > 0 ? ` · ${t("readSources", { n: view.evidence.length })}` : "";
  return t("steps", { n: count }) + read;
}

/** The entries with everything their rows depend on, without the answer itself. */
function shownItems(view) {
  const answer = answerText(view);
  const lastCall = view.entries.findLastIndex((entry) => entry.kind === "call" && !entry.stepId);
  return view.entries
    .filter((entry, index) => {
      if (entry.kind !== "text") return true;
      if (!entry.retracted && !entry.stepId && index > lastCall) return false;
      return entry.text.trim() !== "" && (entry.retracted || !answer.includes(entry.text.trim()));
    })
    .map((entry) => ({
      entry,
      call: view.calls[entry.callId],
      approval: entry.callId ? Object.values(view.approvals).find((item) => item.callId === entry.callId) : view.approvals[entry.approvalId],
      step: view.steps[entry.step],
    }));
}

function sameItem(before, now) {
  return before.entry === now.entry && before.call === now.call && before.approval === now.approval && before.step === now.step;
}

function row({ entry, call, approval, step }) {
  const make = ROWS[entry.kind];
  const item = make ? make(entry, { call, approval, step }) : h("li", { hidden: true });
  if (entry.stepId) item.classList.add("within-step");
  return item;
}

const plain = (kind, ...children) => h("li", { class: `row row-${kind}` }, ...children);

const ROWS = {
  stage: (entry) => plain("stage", h("span", { class: "row-title" }, entry.text || word("stage", entry.name))),
  thinking(entry) {
    const time = formatSeconds(Math.max(0, (entry.endedAt ?? 0) - (entry.at ?? 0)) / 1000);
    const head = h("summary", {}, h("span", { class: "row-title" }, t("thought", { time })));
    return plain("thinking", h("details", {}, head, h("p", { class: "thought" }, entry.text)));
  },
  text: (entry) => plain("text", h("p", { class: entry.retracted ? "remark withdrawn" : "remark" }, entry.text)),
  call: (entry, { call, approval }) => callRow(call, approval),
  notice: (entry) => plain("notice", h("span", { class: "row-title" }, entry.text || entry.code)),
  retracted: (entry) => plain("notice", h("span", { class: "row-title" }, entry.text ? t("retractedText", { reason: entry.text }) : t("retracted"))),
  compacted: (entry) => plain("notice", h("span", { class: "row-title" }, t("compacted", { n: entry.messages }))),
  route: (entry) => plain("stage", h("span", { class: "row-title" }, entry.choice ? t("routed", { choice: entry.choice }) : t("notRouted"))),
  plan: (entry) => plain("plan", h("span", { class: "row-title" }, t("plan")), h("ol", {}, entry.steps.map((step) => h("li", {}, step.title)))),
  step: (entry, { step }) =>
    plain(
      `step ${step.state === "failed" ? "failed" : step.state === "completed" ? "done" : "busy"}`,
      h("span", { class: "row-title" }, step.title || step.stepId),
      h("span", { class: "row-time" }, formatSeconds(step.took)),
      step.summary ? h("p", { class: "remark" }, step.summary) : null,
    ),
  questions: (entry, { approval }) =>
    plain("questions", h("span", { class: "row-title" }, t("answerQuestions")), h("span", { class: "row-state" }, word("state", approval?.state ?? "pending"))),
};

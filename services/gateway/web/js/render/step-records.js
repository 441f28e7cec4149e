// The steps of a research agent or the nodes of a workflow on the run page: what was planned, how each went, what it used.

import { h } from "../dom.js";
import { formatNumber, formatSeconds, t, word } from "../i18n/index.js";

export function stepRecords(view) {
  const planned = (view.plan?.steps ?? []).filter((step) => !view.steps[step.stepId]).map((step) => ({ ...step, state: "planned" }));
  const steps = [...Object.values(view.steps), ...planned];
  return h(
    "div",
    {},
    view.plan ? h("p", { class: "muted" }, t("planned", { n: view.plan.steps.length }), view.plan.complexity ? ` · ${word("plan", view.plan.complexity)}` : "") : null,
    h("ol", {}, steps.map((step) => h("li", {}, record(step, view)))),
  );
}

function record(step, view) {
  const calls = Object.values(view.calls).filter((call) => call.stepId === step.stepId);
  const models = view.modelCalls.filter((call) => call.stepId === step.stepId);
  const tokens = models.reduce((sum, call) => sum + call.input + call.output, 0);
  const text = view.entries.filter((entry) => entry.kind === "text" && entry.stepId === step.stepId && !entry.retracted).map((entry) => entry.text.trim()).filter(Boolean).join("\n\n");
  const facts = [
    models.length > 0 ? t("modelCalls", { n: models.length }) : "", tokens > 0 ? t("tokens", { n: formatNumber(tokens) }) : "",
    calls.length > 0 ? `${t("tools")}: ${calls.map((call) => call.name).join(", ")}` : "",
  ].filter(Boolean);
  return h(
    "details",
    { class: `record record-${step.state}`, dataset: { key: `step-${step.stepId}` } },
    h("summary", {}, step.kind ? h("code", {}, step.kind) : null, h("span", { class: "gist" }, step.title || step.stepId), h("span", { class: "row-state" }, word("step", step.state)), h("span", { class: "row-time" }, formatSeconds(step.took))),
    h("div", { class: "record-body" }, facts.length > 0 ? h("p", { class: "muted figures" }, facts.join(" · ")) : null, step.summary ? h("p", { class: "remark" }, step.summary) : null, text && text !== step.summary ? h("p", { class: "remark" }, text) : null),
  );
}

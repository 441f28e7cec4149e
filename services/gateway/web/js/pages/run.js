// One run told from its journal: waterfall, timeline in two columns, tools, evidence, router, raw events.

import { EMPTY_RUN, fold, TERMINAL } from "../fold.js";
import { h, safeUrl } from "../dom.js";
import { formatDay, formatNumber, formatSeconds, t, word } from "../i18n/index.js";
import { callDetails } from "../render/call.js";
import { passageCard, placeOf } from "../render/passage.js";
import { rawEvents } from "../render/raw-events.js";
import { routeScores } from "../render/route.js";
import { stepRecords } from "../render/step-records.js";
import { timeTable } from "../render/time-table.js";
import { waterfall } from "../render/waterfall.js";
import { RunStream } from "../run-stream.js";
import { integer } from "../wire.js";

export class RunPage {
  #view = EMPTY_RUN;
  #events = [];
  #frame = 0;
  #drawn = "";
  #traceUrl = "";

  constructor(app, runId) {
    this.app = app;
    this.runId = runId;
    this.head = h("header", { class: "page-head" }, h("p", { class: "muted" }, t("loading")));
    this.body = h("div", { class: "run-body" });
    this.element = h("div", { class: "page run-page" }, this.head, this.body);
    this.stream = new RunStream({ api: app.api, onEvent: (event) => this.#take(event) });
  }

  async start() {
    document.title = `${t("runs")} · Proctor`;
    this.app.me().then((me) => {
      this.#traceUrl = me.trace_url ?? "";
      if (this.#view.runId) this.#drawHead(this.#view);
    });
    try {
      await this.stream.attach(this.runId);
    } catch (error) {
      const text = error.status === 404 || error.status === 403 ? t("unknownRun") : error.message;
      this.head.replaceChildren(h("h1", {}, text), h("p", {}, h("a", { href: "/runs" }, t("runs"))));
    }
  }

  dispose() {
    this.stream.leave();
    cancelAnimationFrame(this.#frame);
  }

  #take(event) {
    this.#events.push(event);
    this.#view = fold(this.#view, event);
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = 0;
    const view = this.#view;
    document.title = `${view.question.slice(0, 60)} · Proctor`;
    this.#drawHead(view);
    // While text streams only its length changes; the sections are rebuilt when something else happens.
    const kinds = `${view.entries.length}/${Object.values(view.calls).map((call) => call.state).join()}/${view.modelCalls.length}/${view.evidence.length}/${Object.values(view.steps).map((step) => step.state).join()}/${view.phase}`;
    if (kinds === this.#drawn) return;
    this.#drawn = kinds;
    const open = new Set([...this.body.querySelectorAll("details[open][data-key]")].map((item) => item.dataset.key));
    this.body.replaceChildren(
      section(t("waterfall"), waterfall(view)),
      ...(view.route ? [section(t("router"), routeScores(view.route))] : []),
      ...(view.plan || Object.keys(view.steps).length > 0 ? [section(t("stepsTitle"), stepRecords(view))] : []),
      section(t("timeline"), timeTable(this.#events, view.steps)),
      section(t("tools"), tools(view)),
      section(t("evidence"), evidence(view, this.app.api)),
      section(t("rawEvents"), rawEvents(this.#events)),
    );
    for (const item of this.body.querySelectorAll("details[data-key]")) if (open.has(item.dataset.key)) item.open = true;
  }

  #drawHead(view) {
    const phase = view.phase;
    const usage = view.result?.usage ?? {};
    const facts = [
      [t("started"), view.startedAt ? formatDay(view.startedAt) : ""],
      [t("duration"), view.startedAt && view.endedAt ? formatSeconds((view.endedAt - view.startedAt) / 1000) : ""],
      [t("agent"), view.agent], [t("model"), view.model],
      [t("usage"), TERMINAL.has(phase) ? `${t("inTokens", { n: formatNumber(integer(usage.input_tokens)) })} · ${t("outTokens", { n: formatNumber(integer(usage.output_tokens)) })}` : ""],
      [t("trace"), traceLink(view.traceId, this.#traceUrl)],
    ].filter(([, value]) => value);
    this.head.replaceChildren(
      h("p", { class: `state state-${phase}` }, word("run", phase)),
      h("h1", {}, view.question || this.runId),
      view.failure ? h("p", { class: "trouble" }, `${view.failure.reason}: ${view.failure.message}`) : "",
      h("dl", { class: "facts" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      view.conversationId ? h("p", {}, h("a", { href: `/c/${encodeURIComponent(view.conversationId)}` }, t("toConversation"))) : "",
    );
  }
}

function section(title, content) {
  return h("section", { class: "panel" }, h("h2", {}, title), content);
}

function tools(view) {
  const calls = Object.values(view.calls);
  if (calls.length === 0) return h("p", { class: "muted" }, t("noTools"));
  return h("div", {}, calls.map((call) => {
    const approval = Object.values(view.approvals).find((item) => item.callId === call.callId);
    return h(
      "details",
      { class: "record", dataset: { key: `call-${call.callId}` } },
      h("summary", {}, h("code", {}, call.name), h("span", { class: "gist" }, call.reason || call.arguments?.query || ""), h("span", { class: "row-state" }, word("call", call.state)), h("span", { class: "row-time" }, formatSeconds(call.took))),
      h("div", { class: "record-body" }, callDetails(call, approval)),
    );
  }));
}

function evidence(view, api) {
  if (view.evidence.length === 0) return h("p", { class: "muted" }, t("noEvidence"));
  return h("div", {}, view.evidence.map((item) => {
    const details = h(
      "details",
      { class: "record", dataset: { key: `evidence-${item.number}` } },
      h("summary", {}, h("span", { class: "passage-number" }, String(item.number)), h("span", { class: "gist" }, item.title, placeOf(item) ? ` · ${placeOf(item)}` : ""), h("span", { class: "row-state" }, item.cited === null ? "" : t(item.cited ? "cited" : "notCited")), h("span", { class: "row-time" }, item.score > 0 ? item.score.toFixed(2) : "")),
    );
    details.addEventListener("toggle", () => {
      if (details.open && details.childElementCount === 1) details.append(passageCard(item, { loadPassage: (id) => api.passage(id) }));
    });
    return details;
  }));
}

/** The id of a trace, as a link where the operator has said where traces are looked at. */
function traceLink(traceId, template) {
  const url = traceId && template ? safeUrl(template.replaceAll("{trace_id}", encodeURIComponent(traceId))) : null;
  return url ? h("a", { href: url, target: "_blank", rel: "noopener noreferrer" }, traceId) : traceId;
}

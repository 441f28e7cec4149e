// The queue: what waits for a decision, and what was decided.

import { h } from "../dom.js";
import { formatDay, t, word } from "../i18n/index.js";
import { AllowRules } from "../render/allow-rules.js";
import { answeredPart } from "../render/answers.js";
import { argumentParts, decisionLine, editedPart } from "../render/call.js";
import { placeAll } from "../render/numbered.js";
import { slipFor } from "../render/slips.js";
import { bare, embedded, millis } from "../wire.js";

const STATES = { pending: ["pending"], decided: ["approved", "edited", "denied", "expired", "cancelled", "answered"], all: [] };
const REFRESH = 900; // ms between looks while the page is open: a decision made elsewhere shows within a second

export class ApprovalsPage {
  #cards = new Map(); // pending cards by id; a card in use is never rebuilt
  #timer = 0;
  #serial = 0;
  #underway = 0;

  constructor(app) {
    this.app = app;
    this.which = "pending";
    this.tool = h("input", { type: "search", placeholder: t("anyTool"), "aria-label": t("tool") });
    this.tool.addEventListener("change", () => this.#load());
    this.list = h("div", { class: "queue" });
    this.rules = new AllowRules(app);
    this.tabs = Object.keys(STATES).map((name) => h("button", { type: "button", class: "tab", "aria-pressed": String(name === this.which), onclick: () => this.#choose(name) }, t(`filter.${name}`)));
    this.element = h(
      "div",
      { class: "page" },
      h("header", { class: "page-head" }, h("h1", {}, t("approvals")), h("p", {}, t("approvalsIntro"))),
      h("div", { class: "filters", role: "group", "aria-label": t("filter") }, this.tabs, this.tool),
      this.list,
      this.rules.element,
    );
  }

  start() {
    document.title = `${t("approvals")} · Proctor`;
    // Where answers take longer than this, the next look waits for the last one: only the latest is shown.
    this.#timer = setInterval(() => { if (!document.hidden && this.#underway === 0) this.#load(); }, REFRESH);
    this.#load();
    this.rules.load();
  }

  dispose() {
    clearInterval(this.#timer);
    for (const card of this.#cards.values()) card.dispose();
  }

  #choose(name) {
    this.which = name;
    this.tabs.forEach((tab, index) => tab.setAttribute("aria-pressed", String(Object.keys(STATES)[index] === name)));
    this.#load();
  }

  async #load() {
    const serial = (this.#serial += 1);
    this.#underway += 1;
    try {
      const reply = await this.app.api.approvals({ state: STATES[this.which], tool: this.tool.value.trim(), page_size: 100 });
      if (serial === this.#serial) this.#draw((reply.approvals ?? []).map(readApproval));
    } catch (error) {
      if (serial === this.#serial) this.list.replaceChildren(h("p", { class: "trouble" }, error.message));
    } finally {
      this.#underway -= 1;
    }
  }

  #draw(approvals) {
    const pending = new Set(approvals.filter((item) => item.state === "pending").map((item) => item.approvalId));
    for (const [id, card] of this.#cards) {
      if (pending.has(id)) continue;
      card.dispose();
      this.#cards.delete(id);
    }
    const nodes = approvals.map((item) => (item.state === "pending" && item.kind !== "client_tool" ? this.#waiting(item) : decided(item)));
    const wanted = nodes.length > 0 ? nodes : [h("p", { class: "muted empty" }, t(this.which === "pending" ? "noApprovals" : "noApprovalsAll"))];
    placeAll(this.#cards.values());
    const kept = [...this.list.children];
    if (kept.length === wanted.length && kept.every((node, index) => node === wanted[index])) return; // keeps the keyboard's place
    this.list.replaceChildren(...wanted);
  }

  #waiting(approval) {
    const known = this.#cards.get(approval.approvalId);
    if (known) return known.element;
    const card = slipFor(approval, {
      heading: "h2",
      now: this.app.now,
      decide: async (body) => {
        await this.app.api.decide(approval.approvalId, body);
        this.app.shell.countApprovals();
        this.#load();
        this.rules.load();
      },
    });
    card.element.append(origin(approval));
    this.#cards.set(approval.approvalId, card);
    return card.element;
  }
}

function decided(approval) {
  return h(
    "details",
    { class: `record record-${approval.state}` },
    h("summary", {}, approval.tool ? h("code", {}, approval.tool) : null, h("span", { class: "gist" }, gist(approval)), h("span", { class: "row-state" }, word("state", approval.state)), h("span", { class: "row-time" }, approval.askedAt ? formatDay(approval.askedAt) : "")),
    h("div", { class: "record-body" }, argumentParts(approval), decisionLine(approval), editedPart(approval), answeredPart(approval), origin(approval)),
  );
}

/** What a record is about in one line. */
function gist(approval) {
  if (approval.kind === "client_tool" && approval.state === "pending") return t("callerAnswers");
  return approval.reason || approval.questions.map((question) => question.text).join(" ") || ({ continue: t("waitsForYou"), question: t("answerQuestions") }[approval.kind] ?? "");
}

function origin(approval) {
  return h(
    "p",
    { class: "origin" },
    approval.requestedBy ? h("span", {}, t("requestedBy", { who: approval.requestedBy })) : null,
    approval.policy ? h("span", {}, `${t("policy")}: ${approval.policy}`) : null,
    approval.runId ? h("a", { href: `/runs/${encodeURIComponent(approval.runId)}` }, t("inRun", { run: approval.runId.slice(0, 8) })) : null,
  );
}

function readApproval(item) {
  return {
    approvalId: item.approval_id, gate: bare(item.gate, "GATE_"), kind: bare(item.kind, "APPROVAL_KIND_"), state: bare(item.state, "APPROVAL_STATE_"), tool: item.tool ?? "",
    arguments: embedded(item.arguments_json), parameters: embedded(item.parameters_json), digest: item.arguments_digest ?? "",
    reason: item.reason ?? "", policy: item.policy ?? "", deadline: millis(item.deadline), askedAt: millis(item.requested_at),
    decidedBy: item.decided_by ?? "", comment: item.comment ?? "", requestedBy: item.requested_by ?? "", runId: item.run_id ?? "",
    questions: item.questions ?? [], edited: embedded(item.edited_arguments_json), answers: embedded(item.answer_json), skipped: Boolean(item.skipped),
  };
}

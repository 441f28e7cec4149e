// Every run, newest first.

import { h } from "../dom.js";
import { formatDay, formatNumber, formatSeconds, t, word } from "../i18n/index.js";
import { bare, integer, millis } from "../wire.js";

const STATES = ["running", "paused", "completed", "failed", "cancelled"];

export class RunsPage {
  #next = "";

  constructor(app) {
    this.app = app;
    this.state = h("select", { "aria-label": t("state") }, h("option", { value: "" }, t("filter.any")), STATES.map((name) => h("option", { value: name }, word("run", name))));
    this.state.addEventListener("change", () => this.#load());
    this.list = h("ol", { class: "run-list" });
    this.more = h("button", { type: "button", class: "button quiet", hidden: true, onclick: () => this.#load(this.#next) }, t("more"));
    this.trouble = h("p", { class: "trouble", role: "status" });
    this.element = h(
      "div",
      { class: "page" },
      h("header", { class: "page-head" }, h("h1", {}, t("runs")), h("p", {}, t("runsIntro"))),
      h("div", { class: "filters", role: "group", "aria-label": t("filter") }, this.state),
      this.trouble,
      this.list,
      this.more,
    );
  }

  start() {
    document.title = `${t("runs")} · Proctor`;
    this.#load();
  }

  dispose() {}

  async #load(token = "") {
    try {
      const reply = await this.app.api.runs({ state: this.state.value, page_token: token, page_size: 50 });
      const rows = (reply.runs ?? []).map(runRow);
      if (token === "") this.list.replaceChildren(...(rows.length > 0 ? rows : [h("li", { class: "muted empty" }, t("noRuns"))]));
      else this.list.append(...rows);
      this.#next = reply.next_page_token ?? "";
      this.more.hidden = this.#next === "";
      this.trouble.textContent = "";
    } catch (error) {
      this.trouble.textContent = error.message;
    }
  }
}

function runRow(run) {
  const state = bare(run.state, "RUN_STATE_");
  const [from, to] = [millis(run.created_at), millis(run.finished_at)];
  const tokens = integer(run.usage?.input_tokens) + integer(run.usage?.output_tokens);
  return h(
    "li",
    {},
    h(
      "a",
      { href: `/runs/${encodeURIComponent(run.run_id)}`, class: "run-row" },
      h("span", { class: `state state-${state}` }, word("run", state)),
      h("span", { class: "run-question" }, run.question || run.run_id),
      h("span", { class: "run-facts" }, [run.agent_name, run.model].filter(Boolean).join(" · "), run.failure ? h("span", { class: "trouble" }, run.failure) : null),
      h("span", { class: "figures" }, from ? formatDay(from) : ""),
      h("span", { class: "figures" }, from && to ? formatSeconds((to - from) / 1000) : ""),
      h("span", { class: "figures" }, tokens > 0 ? t("tokens", { n: formatNumber(tokens) }) : ""),
    ),
  );
}

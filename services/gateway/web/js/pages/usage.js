// What was spent: tokens and cost by day, model and user as the usage service has them, and by agent from the runs listed.
// Without that service everything is summed over the runs.

import { h } from "../dom.js";
import { currentLanguage, formatNumber, t } from "../i18n/index.js";
import { Quotas } from "../render/quotas.js";
import { asRuns, by, byDay, total } from "../usage-sums.js";
import { millis } from "../wire.js";

const DAYS = 30;
/** What the charts are of: `of(sum)` is its size, `text(sum)` how it is told. */
const MEASURES = {
  tokens: { of: (sum) => sum.input + sum.output, text: (sum) => t("tokens", { n: formatNumber(sum.input + sum.output) }) },
  cost: { of: (sum) => sum.cost, text: (sum) => formatNumber(sum.cost, 4) },
};
const MOST_PAGES = 10; // of 500 runs each; beyond that the page says that it shows the latest only

export class UsagePage {
  #measure = "tokens";

  constructor(app) {
    this.app = app;
    this.body = h("div", { class: "usage" }, h("p", { class: "muted" }, t("loading")));
    this.intro = h("p", {});
    this.quotas = new Quotas(app);
    this.everybody = h("input", { type: "checkbox" });
    this.everybody.addEventListener("change", () => this.#load());
    this.whose = h("label", { class: "check", hidden: true }, this.everybody, t("wholeTenant"));
    this.element = h("div", { class: "page" }, h("header", { class: "page-head" }, h("h1", {}, t("usage")), this.intro, this.whose), this.body, this.quotas.element);
  }

  async start() {
    document.title = `${t("usage")} · Proctor`;
    this.quotas.load();
    this.app.me().then(({ scopes }) => { this.whose.hidden = !(scopes.includes("*") || scopes.includes("usage:all")); });
    await this.#load();
  }

  async #load() {
    const whole = this.everybody.checked;
    this.intro.textContent = t(whole ? "usageIntroAll" : "usageIntro", { n: DAYS });
    try {
      const [{ runs, complete }, spent] = await Promise.all([this.#recent(), this.app.api.usage(whole ? { whole_tenant: true } : {}).then((reply) => asRuns(reply.days ?? []), () => null)]);
      if (whole !== this.everybody.checked) return;
      this.body.replaceChildren(...this.#charts(spent ?? runs, whole ? null : runs), complete ? "" : h("p", { class: "muted" }, t("usageCut", { n: formatNumber(runs.length) })));
    } catch (error) {
      this.body.replaceChildren(h("p", { class: "trouble" }, error.message));
    }
  }

  dispose() {}

  /** Runs of the last days, newest first; `complete` unless there were more than are read. */
  async #recent() {
    const since = this.app.now() - DAYS * 86_400_000;
    const runs = [];
    let token = "";
    for (let page = 0; page < MOST_PAGES; page += 1) {
      const reply = await this.app.api.runs({ page_size: 500, page_token: token });
      const fresh = (reply.runs ?? []).filter((run) => millis(run.created_at) >= since);
      runs.push(...fresh);
      token = reply.next_page_token ?? "";
      if (!token || fresh.length < (reply.runs ?? []).length) return { runs, complete: true };
    }
    return { runs, complete: false };
  }

  /** `runs` are those of the caller; of everybody's the agents are not known. */
  #charts(spent, runs) {
    const sum = total(spent);
    if (sum.runs === 0) return [h("p", { class: "muted empty" }, t("noRuns"))];
    const facts = [[t("runs"), formatNumber(sum.runs)], [t("tokensIn"), formatNumber(sum.input)], [t("tokensOut"), formatNumber(sum.output)]];
    if (sum.cost > 0) facts.push([t("cost"), formatNumber(sum.cost, 4)]);
    const measure = sum.cost > 0 ? this.#measure : "tokens";
    const choose = (name) => {
      this.#measure = name;
      this.body.replaceChildren(...this.#charts(spent, runs));
      this.body.querySelector('.tab[aria-pressed="true"]').focus();
    };
    const tab = (name) => h("button", { type: "button", class: "tab", "aria-pressed": String(name === measure), onclick: () => choose(name) }, t(`measure.${name}`));
    const barList = (groups) => bars(groups, MEASURES[measure]);
    return [
      h("dl", { class: "facts totals" }, facts.map(([name, value]) => h("div", {}, h("dt", {}, name), h("dd", {}, value)))),
      sum.cost > 0 ? h("div", { class: "filters", role: "group", "aria-label": t("filter") }, Object.keys(MEASURES).map(tab)) : "",
      panel(t("byDay"), dayChart(byDay(spent, DAYS, this.app.now()), measure)),
      h("div", { class: "usage-groups" }, 
        panel(t("byModel"), barList(by(spent, "model"))), runs === null ? null : panel(t("byAgent"), barList(by(runs, "agent_name"))), panel(t("byUser"), barList(by(spent, "user"))),
      ),
    ];
  }
}

function panel(title, content) {
  return h("section", { class: "panel" }, h("h2", {}, title), content);
}

function dayChart(days, measure) {
  const { of, text: told } = MEASURES[measure];
  const most = Math.max(...days.map(of)) || 1;
  const parts = measure === "tokens" ? [["generation", (day) => day.output], ["firstToken", (day) => day.input]] : [["generation", of]];
  const name = new Intl.DateTimeFormat(currentLanguage() === "zh" ? "zh-CN" : "en", { month: "short", day: "numeric" });
  return h(
    "figure",
    { class: "day-chart" },
    measure === "tokens" ? h("p", { class: "legend" }, h("span", { class: "key key-firstToken" }, t("tokensIn")), h("span", { class: "key key-generation" }, t("tokensOut"))) : null,
    h("ol", {}, days.map((day, index) => {
      const split = `${t("inTokens", { n: formatNumber(day.input) })}, ${t("outTokens", { n: formatNumber(day.output) })}`;
      const text = `${name.format(day.day)}: ${measure === "tokens" ? split : told(day)}`;
      const column = h("span", { class: "column", "aria-hidden": "true" }, parts.map(([kind, size]) => piece(kind, size(day) / most)));
      return h("li", { title: text }, h("span", { class: "visually-hidden" }, text), column, index % 5 === 4 ? h("span", { class: "day-name figures", "aria-hidden": "true" }, name.format(day.day)) : null);
    })),
  );
}

function piece(kind, share) {
  const element = h("span", { class: `key-${kind}` });
  element.style.height = `${share * 100}%`;
  return element;
}

function bars(groups, { of, text }) {
  const most = Math.max(...groups.map(of)) || 1;
  const sorted = [...groups].sort((a, b) => of(b) - of(a));
  return h("ol", { class: "bar-list" }, sorted.map((group) => {
    const bar = h("span", { class: "bar-fill", "aria-hidden": "true" });
    bar.style.width = `${(of(group) / most) * 100}%`;
    return h("li", {}, h("span", { class: "bar-name" }, group.name), h("span", { class: "figures muted" }, text(group)), bar);
  }));
}

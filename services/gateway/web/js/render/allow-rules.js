// What runs without asking because its user said so: each rule with a way to take it back.

import { h, iconButton } from "../dom.js";
import { formatDay, t } from "../i18n/index.js";
import { millis } from "../wire.js";

export class AllowRules {
  constructor(app) {
    this.app = app;
    this.list = h("ul", { class: "rule-list" });
    this.element = h("section", { class: "panel rules", hidden: true }, h("h2", {}, t("allowRules")), h("p", { class: "muted" }, t("allowRulesIntro")), this.list);
  }

  async load() {
    try {
      const { rules = [] } = await this.app.api.allowRules();
      this.list.replaceChildren(...rules.map((rule) => this.#row(rule)));
      this.element.hidden = rules.length === 0;
    } catch {
      this.element.hidden = true; // may not decide, or the server keeps no rules
    }
  }

  #row(rule) {
    const limits = [
      rule.conversation_id ? t("ruleConversation") : t("ruleEverywhere"),
      rule.arguments_digest ? t("ruleArguments") : "", rule.when ?? "",
      rule.expires_at ? t("ruleUntil", { time: formatDay(millis(rule.expires_at)) }) : "",
    ].filter(Boolean);
    return h("li", {}, h("code", {}, rule.tool), h("span", { class: "muted" }, limits.join(" · ")), iconButton("trash", t("deleteRule", { tool: rule.tool }), () => this.#delete(rule)));
  }

  async #delete(rule) {
    try {
      await this.app.api.deleteAllowRule(rule.rule_id);
    } catch (error) {
      this.app.shell.tell(error.message);
    }
    await this.load();
  }
}

// Agents to look at and to make, the prompts they refer to, and models of one's own.

import { h, iconButton } from "../dom.js";
import { t } from "../i18n/index.js";
import { marks } from "../render/agent-view.js";
import { confirmed } from "../render/confirm.js";
import { OwnModels } from "../render/own-models.js";
import { editPrompt } from "../render/prompt-dialog.js";

/** Whether a caller may keep agents. */
export function mayWrite({ scopes = [] }) {
  return scopes.some((scope) => ["*", "agents:write", "agents:admin"].includes(scope));
}

export class AgentsPage {
  constructor(app) {
    this.app = app;
    this.body = h("div", { class: "agents" }, h("p", { class: "muted" }, t("loading")));
    this.prompts = h("section", { class: "panel prompts", hidden: true });
    this.models = new OwnModels(app);
    this.make = h("a", { href: "/agents/new", class: "button quiet", hidden: true }, t("newAgent"));
    this.element = h("div", { class: "page" }, h("header", { class: "page-head" }, h("h1", {}, t("agents")), h("p", {}, t("agentsIntro")), h("div", { class: "slip-actions head-actions" }, this.make, h("a", { href: "/memories", class: "button quiet" }, t("memories")))), this.body, this.prompts, this.models.element);
  }

  async start() {
    document.title = `${t("agents")} · Proctor`;
    this.app.me().then((me) => {
      this.make.hidden = !mayWrite(me);
      if (mayWrite(me)) this.#loadPrompts();
    });
    this.models.load();
    try {
      const { agents = [] } = await this.app.api.agents();
      this.body.replaceChildren(h("ul", { class: "run-list" }, agents.map((agent) => this.#row(agent))));
    } catch (error) {
      this.body.replaceChildren(h("p", { class: "trouble" }, error.message));
    }
  }

  dispose() {}

  #row(agent) {
    const name = h("span", { class: "run-question" }, agent.name);
    return h("li", {}, h("a", { class: "agent-row", href: `/agents/${encodeURIComponent(agent.agent_id)}` }, name, marks(agent), agent.description ? h("span", { class: "muted agent-words" }, agent.description) : null));
  }

  #loadPrompts = async () => {
    try {
      const { prompts = [] } = await this.app.api.prompts();
      const add = h("button", { type: "button", class: "button quiet", onclick: () => this.#edit(null) }, t("newPrompt"));
      const rows = prompts.map((prompt) => this.#prompt(prompt));
      this.prompts.replaceChildren(h("h2", {}, t("prompts")), h("p", { class: "muted" }, t("promptsIntro")), rows.length ? h("ul", { class: "rule-list" }, rows) : "", add);
      this.prompts.hidden = false;
    } catch (error) {
      this.app.shell.tell(error.message);
    }
  };

  #prompt(prompt) {
    const whose = prompt.read_only ? t("operators") : t(prompt.shared ? "ownerShared" : "ownerPrivate", { who: prompt.owner });
    return h(
      "li",
      {},
      h("code", {}, prompt.name),
      h("span", { class: "muted" }, [t("versionOf", { n: prompt.version }), whose, prompt.description].filter(Boolean).join(" · ")),
      iconButton(prompt.read_only ? "file" : "edit", `${t(prompt.read_only ? "open" : "edit")}: ${prompt.name}`, () => this.#edit(prompt)),
      prompt.read_only ? null : iconButton("trash", `${t("delete")}: ${prompt.name}`, () => this.#delete(prompt)),
    );
  }

  async #edit(prompt) {
    const keep = (changed) => (prompt ? this.app.api.updatePrompt(prompt.prompt_id, changed) : this.app.api.createPrompt(changed));
    if (await editPrompt(prompt, keep)) await this.#loadPrompts();
  }

  async #delete(prompt) {
    if (!(await confirmed(t("deletePrompt", { name: prompt.name }), t("delete")))) return;
    try {
      await this.app.api.deletePrompt(prompt.prompt_id);
    } catch (error) {
      this.app.shell.tell(error.message);
    }
    await this.#loadPrompts();
  }
}

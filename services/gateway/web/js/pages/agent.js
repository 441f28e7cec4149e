// One agent: looked at, changed, made, deleted; its earlier versions.

import { draftOf } from "../agent-form-data.js";
import { h } from "../dom.js";
import { formatDay, t } from "../i18n/index.js";
import { remember } from "../prefs.js";
import { AgentForm } from "../render/agent-form.js";
import { agentView, marks } from "../render/agent-view.js";
import { confirmed } from "../render/confirm.js";
import { millis } from "../wire.js";
import { mayWrite } from "./agents.js";

export class AgentPage {
  /** `agentId` of an agent, or `new`. */
  constructor(app, agentId) {
    this.app = app;
    this.agentId = agentId;
    this.title = h("h1", {}, t(agentId === "new" ? "newAgent" : "agent"));
    this.head = h("header", { class: "page-head" }, this.title);
    this.body = h("div", {}, h("p", { class: "muted" }, t("loading")));
    this.element = h("div", { class: "page" }, h("p", { class: "back" }, h("a", { href: "/agents" }, t("allAgents"))), this.head, this.body);
  }

  async start() {
    document.title = `${t("agents")} · Proctor`;
    try {
      this.me = await this.app.me();
      if (this.agentId === "new") await this.#edit({});
      else this.#show((await this.app.api.agent(this.agentId)).agent);
    } catch (error) {
      this.body.replaceChildren(h("p", { class: "trouble" }, error.message));
    }
  }

  dispose() {}

  #show(agent) {
    const newest = this.agent && this.agent.version > agent.version ? this.agent : agent;
    this.agent = newest;
    document.title = `${agent.name} · Proctor`;
    this.title.textContent = agent.name;
    this.head.replaceChildren(this.title, marks(agent), agent.description ? h("p", {}, agent.description) : "", this.#actions(agent));
    const versions = h("section", { class: "panel", hidden: true });
    const view = agentView(agent);
    view.append(versions);
    this.body.replaceChildren(view);
    if (!agent.read_only) this.#versions(agent, versions);
  }

  #actions(agent) {
    const button = (label, act, look = "quiet") => h("button", { type: "button", class: `button ${look}`, onclick: act }, label);
    const ask = button(t("ask"), () => { remember("agent", agent.agent_id); this.app.go("/"); }, "allow");
    if (!mayWrite(this.me)) return h("div", { class: "slip-actions head-actions" }, ask);
    const copy = { ...agent, agent_id: "", name: t("copyOf", { name: agent.name }), version: 0, read_only: false };
    const own = agent.read_only ? [] : [button(t("edit"), () => this.#edit(agent)), button(t("delete"), () => this.#delete(agent), "deny")];
    return h("div", { class: "slip-actions head-actions" }, ask, own[0], button(t("duplicate"), () => this.#edit(copy)), own[1]);
  }

  async #versions(agent, place) {
    const { versions = [] } = await this.app.api.agentVersions(agent.agent_id).catch(() => ({}));
    if (versions.length < 2) return;
    const rows = versions.map((each) => {
      const label = t("versionOf", { n: each.version });
      const look = each.version === agent.version ? h("b", {}, label) : h("button", { type: "button", class: "as-link", onclick: () => this.#show(each) }, label);
      return h("li", {}, look, h("span", { class: "muted" }, formatDay(millis(each.updated_at))));
    });
    place.replaceChildren(h("h2", {}, t("versions")), h("ul", { class: "rule-list" }, rows));
    place.hidden = false;
  }

  /** Opens the form; of an earlier version it makes a new one. */
  async #edit(agent) {
    const isNew = !agent.agent_id;
    const draft = draftOf({ ...agent, version: isNew ? 0 : this.agent.version });
    const send = (body, validateOnly) => {
      const saved = isNew ? this.app.api.createAgent(body, validateOnly) : this.app.api.updateAgent(agent.agent_id, body, validateOnly);
      return saved.then((reply) => reply.agent);
    };
    const form = new AgentForm(draft, await this.#offers(), {
      onCheck: (body) => send(body, true),
      onSave: async (body) => {
        const kept = await send(body, false);
        this.app.shell.announce(t("saved"));
        if (isNew) this.app.go(`/agents/${encodeURIComponent(kept.agent_id)}`);
        else this.#show(kept);
      },
      onCancel: () => (isNew && this.agentId === "new" ? this.app.go("/agents") : this.#show(this.agent)),
    });
    if (isNew) this.title.textContent = t("newAgent");
    this.head.replaceChildren(this.title);
    this.body.replaceChildren(form.element);
  }

  /** What the form offers to choose from; what cannot be listed is not offered. */
  async #offers() {
    const { api } = this.app;
    const [models, sources, tools, prompts] = await Promise.all([
      api.models().then((reply) => reply.data ?? [], () => []),
      api.sources().then((reply) => reply.sources ?? [], () => []),
      api.tools().then((reply) => reply.tools ?? [], () => []),
      api.prompts().then((reply) => reply.prompts ?? [], () => []),
    ]);
    return {
      models: models.filter((each) => !each.id.startsWith("agent/")).map((each) => [each.id, each.proctor?.name || each.id]),
      sources: sources.map((each) => each.name),
      tools: tools.map((each) => each.name),
      prompts: prompts.map((each) => each.name),
    };
  }

  async #delete(agent) {
    if (!(await confirmed(t("deleteAgent", { name: agent.name }), t("delete")))) return;
    try {
      await this.app.api.deleteAgent(agent.agent_id);
      this.app.go("/agents");
    } catch (error) {
      this.app.shell.tell(error.message);
    }
  }
}

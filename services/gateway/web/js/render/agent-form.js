// Writing an agent: its fields, rows of sources and tools, and what is wrong with each.

import { agentOf, EXPOSURES, POLICIES, TYPES } from "../agent-form-data.js";
import { h, iconButton } from "../dom.js";
import { t } from "../i18n/index.js";
import { area, box, choice, Fields, number, text } from "./fields.js";

export class AgentForm {
  #fields = new Fields();

  /** `offers` names what may be chosen: `models`, `sources`, `tools`, `prompts`. `onSave(agent)` keeps, `onCheck(agent)` only asks. */
  constructor(draft, offers, { onSave, onCheck, onCancel }) {
    this.draft = draft;
    this.offers = offers;
    this.trouble = h("div", { class: "form-trouble", role: "alert" });
    this.good = h("span", { class: "form-good", role: "status" });
    this.tools = h("datalist", { id: "known-tools" }, offers.tools.map((name) => h("option", { value: name })));
    this.save = h("button", { class: "button allow" }, t("save"));
    const check = h("button", { type: "button", class: "button quiet", onclick: () => this.#send(onCheck) }, t("checkAgent"));
    const cancel = h("button", { type: "button", class: "button quiet", onclick: onCancel }, t("cancel"));
    this.element = h(
      "form",
      { class: "agent-form", onsubmit: (event) => { event.preventDefault(); this.#send(onSave); } },
      this.#about(),
      this.#prompt(),
      this.#sources(),
      this.#toolRows(),
      this.#more(),
      this.tools,
      this.trouble,
      h("div", { class: "slip-actions" }, this.save, check, cancel, this.good),
    );
  }

  async #send(act) {
    this.good.textContent = "";
    const { agent, violations } = agentOf(this.draft);
    if (violations.length > 0) return this.#tell(violations, "");
    this.save.disabled = true;
    try {
      await act(agent);
      this.#tell([], "");
      this.good.textContent = t("agentGood");
    } catch (error) {
      this.#tell(error.violations ?? [], error.violations?.length ? "" : error.message);
    } finally {
      this.save.disabled = false;
    }
  }

  #tell(violations, message) {
    const rest = this.#fields.show(violations);
    const lines = rest.map((each) => `${each.field}: ${each.description}`);
    if (message) lines.push(message);
    this.trouble.replaceChildren(...lines.map((line) => h("p", { class: "trouble" }, line)));
  }

  #set = (name) => (value) => { this.draft[name] = value; };

  #about() {
    const draft = this.draft;
    const types = TYPES.map((name) => [name, t(`type.${name}`)]);
    const models = [["", t("defaultModel")], ...this.offers.models];
    const kind = choice(draft.type, types, (value) => { draft.type = value; this.workflow.hidden = value !== "workflow"; });
    return h(
      "div",
      { class: "form-grid" },
      this.#fields.row("name", t("name"), text(draft.name, this.#set("name"), { maxlength: "128", required: true })),
      this.#fields.row("type", t("agentType"), kind),
      this.#fields.row("model", t("model"), choice(draft.model, models, this.#set("model"))),
      this.#fields.row("language", t("answerLanguage"), text(draft.language, this.#set("language"), { placeholder: t("usersLanguage"), maxlength: "35" })),
      h("div", { class: "form-wide" }, this.#fields.row("description", t("description"), text(draft.description, this.#set("description"), { maxlength: "4096" }))),
      h("label", { class: "check form-wide" }, box(draft.shared, this.#set("shared")), t("sharedAgent")),
    );
  }

  #prompt() {
    const draft = this.draft;
    const own = this.#fields.row("prompt", t("prompt"), area(draft.prompt, this.#set("prompt"), 9), t("promptHint"));
    own.hidden = draft.prompt_name !== "";
    const kept = [["", t("ownPrompt")], ...this.offers.prompts.map((name) => [name, name])];
    const which = choice(draft.prompt_name, kept, (value) => {
      draft.prompt_name = value;
      draft.prompt_version = 0;
      own.hidden = value !== "";
    });
    this.workflow = this.#fields.row("workflow_yaml", t("workflow"), area(draft.workflow_yaml, this.#set("workflow_yaml"), 14));
    this.workflow.hidden = draft.type !== "workflow";
    return h("section", { class: "form-part" }, h("h2", {}, t("prompt")), this.#fields.row("prompt_name", t("keptPrompt"), which), own, this.workflow);
  }

  #sources() {
    const exposures = EXPOSURES.map((name) => [name, t(`exposure.${name}`)]);
    const options = [["", t("chooseSource")], ...this.offers.sources.map((name) => [name, name])];
    return this.#list("sources", t("readsFrom"), t("sourcesHint"), { source: "", exposure: "default" }, (row, at) => [
      this.#fields.cell(`${at}.source`, t("source"), choice(row.source, options, (value) => { row.source = value; })),
      this.#fields.cell(`${at}.exposure`, t("exposure"), choice(row.exposure, exposures, (value) => { row.exposure = value; })),
    ]);
  }

  #toolRows() {
    const policies = POLICIES.map((name) => [name, t(`toolPolicy.${name}`)]);
    const empty = { tool: "", policy: "default", when: "", quorum: 0, group: "", four_eyes: false, deadline: null };
    return this.#list("tools", t("tools"), t("toolsHint"), empty, (row, at) => {
      const quorum = h(
        "span",
        { class: "quorum", hidden: row.policy !== "quorum" },
        this.#fields.cell(`${at}.quorum`, t("quorum"), number(row.quorum || null, (value) => { row.quorum = value ?? 0; }, { placeholder: t("quorum") })),
        this.#fields.cell(`${at}.group`, t("group"), text(row.group, (value) => { row.group = value; }, { placeholder: t("group") })),
      );
      const policy = choice(row.policy, policies, (value) => { row.policy = value; quorum.hidden = value !== "quorum"; });
      return [
        this.#fields.cell(`${at}.tool`, t("tool"), text(row.tool, (value) => { row.tool = value; }, { list: "known-tools", placeholder: t("tool") })),
        this.#fields.cell(`${at}.policy`, t("policy"), policy),
        this.#fields.cell(`${at}.when`, t("when"), text(row.when, (value) => { row.when = value; }, { placeholder: t("whenHint"), class: "mono", spellcheck: "false" })),
        quorum,
        h("label", { class: "check" }, box(row.four_eyes, (value) => { row.four_eyes = value; }), t("fourEyes")),
      ];
    });
  }

  /** Rows that can be added and taken away. */
  #list(name, title, hint, empty, cells) {
    const rows = this.draft[name];
    const body = h("ul", { class: `binding-rows binding-${name}` });
    const draw = () => {
      this.#fields.forget(`${name}.`);
      body.replaceChildren(...rows.map((row, index) => h("li", {}, cells(row, `${name}.${index}`), iconButton("close", t("removeRow", { name: row.source || row.tool || "" }), () => { rows.splice(index, 1); draw(); }))));
    };
    draw();
    const add = h("button", { type: "button", class: "button quiet", onclick: () => { rows.push({ ...empty }); draw(); body.lastElementChild.querySelector("input, select").focus(); } }, t(`add.${name}`));
    return h("section", { class: "form-part" }, h("h2", {}, title), h("p", { class: "muted" }, hint), body, add);
  }

  #more() {
    const { budget } = this.draft;
    const cap = (name) => this.#fields.row(`budget.${name}`, t(`cap.${name}`), number(budget[name], (value) => { budget[name] = value; }, { placeholder: t("noCap") }));
    return h(
      "details",
      { class: "form-part" },
      h("summary", {}, t("moreSettings")),
      h("div", { class: "form-grid" }, ["rounds", "tool_calls", "tokens", "wall_time"].map(cap)),
      this.#fields.row("output.json_schema", t("outputSchema"), area(this.draft.schema, this.#set("schema"), 6), t("outputHint")),
      this.#fields.row("router_json", t("router"), area(this.draft.router, this.#set("router"), 6), t("routerHint")),
    );
  }
}

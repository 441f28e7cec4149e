// Models of one's own: what is kept, a form for a new one or a change, and forgetting one. Keys go in and never come out.

import { h, iconButton } from "../dom.js";
import { t } from "../i18n/index.js";
import { confirmed } from "./confirm.js";
import { choice, Fields, number, text } from "./fields.js";

const CAPABILITIES = ["tools", "vision", "json_schema", "json_mode", "reasoning"];
const USUAL = ["tools", "json_schema", "json_mode"];

export class OwnModels {
  constructor(app) {
    this.app = app;
    this.element = h("section", { class: "panel prompts", hidden: true });
  }

  load = async () => {
    try {
      const { models = [] } = await this.app.api.ownModels();
      const add = h("button", { type: "button", class: "button quiet", onclick: () => this.#edit(null) }, t("newModel"));
      const rows = models.map((model) => this.#row(model));
      this.element.replaceChildren(h("h2", {}, t("ownModels")), h("p", { class: "muted" }, t("ownModelsIntro")), rows.length ? h("ul", { class: "rule-list" }, rows) : "", add);
      this.element.hidden = false;
    } catch {
      this.element.hidden = true; // a key of one agent, or none are kept here
    }
  };

  #row(model) {
    const words = [model.base_url, model.upstream_name, t(model.has_key ? "keyStored" : "noKey")];
    return h(
      "li",
      {},
      h("code", {}, model.name),
      h("span", { class: "muted" }, words.filter(Boolean).join(" · ")),
      iconButton("edit", `${t("edit")}: ${model.name}`, () => this.#edit(model)),
      iconButton("trash", `${t("delete")}: ${model.name}`, () => this.#delete(model)),
    );
  }

  async #edit(model) {
    const keep = (body) => (model ? this.app.api.updateOwnModel(model.model_id, body) : this.app.api.createOwnModel(body));
    if (await editModel(model, keep)) await this.load();
  }

  async #delete(model) {
    if (!(await confirmed(t("deleteModel", { name: model.name }), t("delete")))) return;
    try {
      await this.app.api.deleteOwnModel(model.model_id);
    } catch (error) {
      this.app.shell.tell(error.message);
    }
    await this.load();
  }
}

/** `keep(body)` sends it; resolves to whether it was kept. */
function editModel(model, keep) {
  const draft = {
    name: model?.name ?? "",
    base_url: model?.base_url ?? "https://",
    upstream_name: model?.upstream_name ?? "",
    api: model?.api || "chat",
    api_key: "",
    window: model?.window || null,
    capabilities: new Set(model?.capabilities ?? USUAL),
  };
  const fields = new Fields();
  const set = (name) => (value) => { draft[name] = value; };
  const trouble = h("div", { role: "alert" });
  const abilities = CAPABILITIES.map((name) => {
    const box = h("input", { type: "checkbox", checked: draft.capabilities.has(name) });
    box.addEventListener("change", () => (box.checked ? draft.capabilities.add(name) : draft.capabilities.delete(name)));
    return h("label", { class: "check" }, box, t(`can.${name}`));
  });
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", {}, model ? model.name : t("newModel")),
    fields.row("name", t("name"), text(draft.name, set("name"), { required: true, maxlength: "128" })),
    fields.row("base_url", t("baseUrl"), text(draft.base_url, set("base_url"), { required: true, type: "url", spellcheck: "false" })),
    fields.row("upstream_name", t("upstreamName"), text(draft.upstream_name, set("upstream_name"), { maxlength: "256" })),
    fields.row("api", t("modelApi"), choice(draft.api, [["chat", "Chat Completions"], ["responses", "Responses"]], set("api"))),
    fields.row("api_key", t("modelKey"), text("", set("api_key"), { type: "password", autocomplete: "new-password" }), model?.has_key ? t("keyStays") : ""),
    fields.row("window", t("window"), number(draft.window, set("window"), { placeholder: t("unknownWindow") })),
    h("div", { class: "abilities" }, abilities),
    trouble,
    h("div", { class: "slip-actions" }, h("button", { class: "button allow", value: "ok" }, t("save")), h("button", { class: "button quiet", value: "", formnovalidate: true }, t("cancel"))),
  );
  const dialog = h("dialog", { class: "dialog", "aria-label": model ? model.name : t("newModel") }, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    const end = (kept) => { dialog.remove(); resolve(kept); };
    form.addEventListener("submit", async (event) => {
      if (event.submitter?.value !== "ok") return;
      event.preventDefault();
      try {
        await keep({ ...draft, name: draft.name.trim(), base_url: draft.base_url.trim(), window: draft.window ?? 0, capabilities: [...draft.capabilities] });
        end(true);
      } catch (error) {
        const rest = fields.show(error.violations ?? []);
        const lines = error.violations?.length ? rest.map((each) => `${each.field}: ${each.description}`) : [error.message];
        trouble.replaceChildren(...lines.map((line) => h("p", { class: "trouble" }, line)));
      }
    });
    dialog.addEventListener("close", () => end(false));
  });
}

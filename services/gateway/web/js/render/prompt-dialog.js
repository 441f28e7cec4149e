// The form of one kept prompt; what is wrong with it stands at its field until it can be kept.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";
import { area, box, Fields, text } from "./fields.js";

/** `keep(prompt)` sends it; resolves to whether it was kept. The operator's is only shown. */
export function editPrompt(prompt, keep) {
  const draft = { name: "", description: "", template: "", shared: false, version: 0, ...prompt };
  const fields = new Fields();
  const only = Boolean(prompt?.read_only);
  const trouble = h("div", { role: "alert" });
  const set = (name) => (value) => { draft[name] = value; };
  const form = h(
    "form",
    { method: "dialog" },
    h("h2", {}, prompt ? prompt.name : t("newPrompt")),
    fields.row("name", t("name"), text(draft.name, set("name"), { maxlength: "128", required: true, disabled: only })),
    fields.row("description", t("description"), text(draft.description, set("description"), { disabled: only })),
    fields.row("template", t("prompt"), area(draft.template, set("template"), 12), t("promptHint")),
    only ? null : h("label", { class: "check" }, box(draft.shared, set("shared")), t("sharedPrompt")),
    trouble,
    h("div", { class: "slip-actions" }, only ? null : h("button", { class: "button allow", value: "ok" }, t("save")), h("button", { class: "button quiet", value: "", formnovalidate: true }, t(only ? "close" : "cancel"))),
  );
  form.querySelector("textarea").readOnly = only;
  const dialog = h("dialog", { class: "dialog wide", "aria-label": prompt ? prompt.name : t("newPrompt") }, form);
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    const end = (kept) => { dialog.remove(); resolve(kept); };
    form.addEventListener("submit", async (event) => {
      if (event.submitter?.value !== "ok") return;
      event.preventDefault();
      try {
        await keep({ name: draft.name.trim(), description: draft.description, template: draft.template, shared: draft.shared, version: draft.version });
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

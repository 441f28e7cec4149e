// Asks for an API key when the server wants one. The key lives in this tab's memory only.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";

let open = null;

/** Resolves to the key, or null when the person closes the dialog. Calls at the same time share one dialog. */
export function askForKey(problem) {
  open ??= ask(problem).finally(() => { open = null; });
  return open;
}

function ask(problem) {
  const field = h("input", { type: "password", name: "key", autocomplete: "off", "aria-label": t("key"), placeholder: t("key") });
  const dialog = h(
    "dialog",
    { class: "dialog" },
    h(
      "form",
      { method: "dialog" },
      h("h2", {}, t("keyTitle")),
      h("p", {}, problem?.detail ?? t("keyText")),
      field,
      h("div", { class: "slip-actions" }, h("button", { class: "button allow", value: "ok" }, t("continue")), h("button", { class: "button quiet", value: "", formnovalidate: true }, t("cancel"))),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "ok" && field.value.trim() ? field.value.trim() : null);
    });
  });
}

// Small dialogs: yes or no, and one line of text.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";

/** Resolves to true when the person confirms. */
export function confirmed(text, action) {
  return show(h("p", {}, text), action, () => true);
}

/** Resolves to the text, or null. */
export function asked(label, value, action) {
  const field = h("input", { type: "text", value, maxlength: "200", "aria-label": label });
  return show(h("label", { class: "argument" }, h("span", {}, label), field), action, () => field.value.trim() || null, field);
}

function show(content, action, read, focus = null) {
  const dialog = h(
    "dialog",
    { class: "dialog" },
    h("form", { method: "dialog" }, content, h("div", { class: "slip-actions" }, h("button", { class: "button allow", value: "ok" }, action), h("button", { class: "button quiet", value: "" }, t("cancel")))),
  );
  document.body.append(dialog);
  dialog.showModal();
  focus?.select();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      resolve(dialog.returnValue === "ok" ? read() : null);
    });
  });
}

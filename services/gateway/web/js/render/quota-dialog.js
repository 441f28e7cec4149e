// The form of one quota: whose use, and the caps; an empty cap is none.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";

const SCOPES = ["tenant", "user", "key"];
const MICROS = 1e6;

/** Resolves to `{ scope, subject, caps }`, or null. Whose a quota is cannot be changed, only what it allows. */
export function editQuota(quota) {
  const scope = h("select", { disabled: quota !== null }, SCOPES.map((name) => h("option", { value: name, selected: name === quota?.scope }, t(`scope.${name}`))));
  const subject = h("input", { type: "text", maxlength: "128", value: quota?.subject ?? "", disabled: quota !== null, placeholder: t("quotaEach") });
  const runs = number(quota?.runs, "1");
  const tokens = number(quota?.tokens, "1");
  const cost = number(quota?.cost_micros === null || quota === null ? null : quota.cost_micros / MICROS, "any");
  const whose = labelled(t("quotaSubject"), subject);
  const showSubject = () => { whose.hidden = scope.value === "tenant"; };
  scope.addEventListener("change", showSubject);
  showSubject();
  const dialog = h(
    "dialog",
    { class: "dialog", "aria-label": t(quota ? "changeQuota" : "newQuota") },
    h(
      "form",
      { method: "dialog" },
      h("h2", {}, t(quota ? "changeQuota" : "newQuota")),
      labelled(t("quotaScope"), scope),
      whose,
      labelled(t("measure.runs"), runs),
      labelled(t("measure.tokens"), tokens),
      labelled(t("measure.cost_micros"), cost),
      h("p", { class: "muted" }, t("quotaHint")),
      h("div", { class: "slip-actions" }, h("button", { class: "button allow", value: "ok" }, t("save")), h("button", { class: "button quiet", value: "", formnovalidate: true }, t("cancel"))),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      dialog.remove();
      if (dialog.returnValue !== "ok") return resolve(null);
      const caps = { runs: whole(runs), tokens: whole(tokens), cost_micros: whole(cost, MICROS) };
      const given = Object.fromEntries(Object.entries(caps).filter(([, value]) => value !== null));
      return resolve({ scope: scope.value, subject: scope.value === "tenant" ? "" : subject.value.trim(), caps: given });
    });
  });
}

function labelled(text, field) {
  return h("label", { class: "argument" }, h("span", {}, text), field);
}

function number(value, step) {
  return h("input", { type: "number", min: "0", step, inputmode: "decimal", value: value ?? null });
}

function whole(field, unit = 1) {
  return field.value.trim() === "" ? null : Math.round(Number(field.value) * unit);
}

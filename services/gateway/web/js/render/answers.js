// What a person answered to the questions of a run.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";

/** Questions with their answers; null while there are none. */
export function answeredPart(approval) {
  if (approval.skipped) return h("p", { class: "decision" }, t("skipped"));
  const asked = Array.isArray(approval.questions) ? approval.questions : approval.questions?.questions ?? [];
  const answers = approval.answers;
  if (asked.length === 0 || typeof answers !== "object" || answers === null) return null;
  return h("dl", { class: "answers" }, asked.map((question) => h("div", {}, h("dt", {}, question.text), h("dd", {}, readable(answers[question.question_id])))));
}

function readable(value) {
  if (value === undefined || value === null || value === "") return "—";
  if (Array.isArray(value)) return value.map(String).join(", ");
  return typeof value === "object" ? JSON.stringify(value) : String(value);
}

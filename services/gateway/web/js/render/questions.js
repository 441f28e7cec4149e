// A form for the questions that a run asks its user.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";
import { bare } from "../wire.js";
import { Countdown } from "./countdown.js";
import { numbered } from "./numbered.js";

const INPUTS = { text: "text", number: "number", date: "date", email: "email", url: "url" };

export class QuestionCard {
  #readers = [];

  constructor(approval, { decide, now, heading = "h3" }) {
    this.countdown = new Countdown(approval, now, () => { this.fields.disabled = true; });
    this.status = h("p", { class: "slip-status", role: "status" });
    this.fields = h("fieldset", {}, h("legend", { class: "visually-hidden" }, t("answerQuestions")));
    const questions = Array.isArray(approval.questions) ? approval.questions : approval.questions?.questions ?? [];
    for (const question of questions) this.fields.append(this.#question(question));
    this.fields.append(
      h(
        "div",
        { class: "slip-actions" },
        h("button", { type: "submit", class: "button allow" }, t("sendAnswers")),
        h("button", { type: "button", class: "button quiet", onclick: () => this.#send(decide, { decision: "answer", skipped: true }) }, t("skip_")),
      ),
    );
    const form = h("form", {}, this.fields);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      const answers = Object.fromEntries(this.#readers.map(([id, read]) => [id, read()]).filter(([, value]) => value !== undefined));
      this.#send(decide, { decision: "answer", answers });
    });
    this.element = h(
      "section",
      { class: "slip questions", tabindex: "-1", "aria-label": t("answerQuestions"), dataset: { approval: approval.approvalId } },
      h("header", {}, h(heading, {}, t("answerQuestions")), this.countdown.element),
      form,
      this.status,
    );
  }

  /** Names the slip: among several, by its number too. */
  place(number, of) {
    this.element.setAttribute("aria-label", numbered(t("answerQuestions"), number, of));
  }

  dispose() {
    this.countdown.stop();
  }

  async #send(decide, body) {
    this.fields.disabled = true;
    this.status.textContent = t("deciding");
    try {
      await decide(body);
      this.status.textContent = t("decided");
    } catch (error) {
      this.status.textContent = error.message;
      this.fields.disabled = error.status === 409;
    }
  }

  #question(question) {
    const type = bare(question.type, "QUESTION_TYPE_");
    const id = question.question_id;
    if (type === "single_choice" || type === "multiple_choice") return this.#choices(question, type === "multiple_choice");
    const field = type === "long_text" ? h("textarea", { rows: "3" }) : h("input", { type: INPUTS[type] ?? "text", step: "any" });
    field.required = Boolean(question.required);
    this.#readers.push([id, () => (field.value === "" ? undefined : type === "number" ? Number(field.value) : field.value)]);
    return h("label", { class: "argument" }, h("span", {}, question.text), field);
  }

  #choices(question, several) {
    const name = `q-${question.question_id}`;
    const box = (value) => h("input", { type: several ? "checkbox" : "radio", name, value, required: Boolean(question.required) && !several && !question.allow_other });
    const boxes = (question.options ?? []).map((option) => box(option));
    const rows = boxes.map((item) => h("label", { class: "choice" }, item, item.value));
    const other = h("input", { type: "text", "aria-label": t("other"), placeholder: t("other") });
    if (question.allow_other) rows.push(h("label", { class: "choice" }, other));
    this.#readers.push([question.question_id, () => {
      const chosen = boxes.filter((item) => item.checked).map((item) => item.value);
      if (question.allow_other && other.value.trim()) chosen.push(other.value.trim());
      if (chosen.length === 0) return undefined;
      return several ? chosen : chosen.at(-1);
    }]);
    return h("fieldset", { class: "argument" }, h("legend", {}, question.text), ...rows);
  }
}

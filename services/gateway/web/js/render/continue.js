// The slip of a run that waits until its user writes again, or ends it here.

import { h, icon } from "../dom.js";
import { t } from "../i18n/index.js";
import { Countdown } from "./countdown.js";
import { numbered } from "./numbered.js";

export class ContinueCard {
  #decide;

  constructor(approval, { decide, now, heading = "h3" }) {
    this.#decide = decide;
    this.countdown = new Countdown(approval, now, () => { this.fields.disabled = true; });
    this.status = h("p", { class: "slip-status", role: "status" });
    this.text = h("textarea", { rows: "2", required: true, "aria-label": t("goOnText"), placeholder: t("goOnText") });
    this.fields = h(
      "fieldset",
      {},
      h("legend", { class: "visually-hidden" }, t("waitsForYou")),
      this.text,
      h("div", { class: "slip-actions" }, h("button", { type: "submit", class: "button allow" }, t("goOn")), h("button", { type: "button", class: "button quiet", onclick: () => this.#send({}) }, t("endHere"))),
    );
    const form = h("form", {}, this.fields);
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send({ input: this.text.value.trim() });
    });
    this.element = h(
      "section",
      { class: "slip questions", tabindex: "-1", "aria-label": t("waitsForYou"), dataset: { approval: approval.approvalId } },
      h("header", {}, icon("ask"), h(heading, {}, t("waitsForYou")), this.countdown.element),
      approval.reason ? h("p", { class: "slip-reason" }, approval.reason) : null,
      form,
      this.status,
    );
  }

  /** Names the slip: among several, by its number too. */
  place(number, of) {
    this.element.setAttribute("aria-label", numbered(t("waitsForYou"), number, of));
  }

  dispose() {
    this.countdown.stop();
  }

  async #send(body) {
    this.fields.disabled = true;
    this.status.textContent = t("deciding");
    try {
      await this.#decide({ decision: "continue", ...body });
      this.status.textContent = t("decided");
    } catch (error) {
      this.status.textContent = error.message;
      this.fields.disabled = error.status === 409;
    }
  }
}

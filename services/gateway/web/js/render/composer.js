// Where a question is written: text, agent, model, documents; Send turns into Stop while a run works.

import { h, iconButton, icon } from "../dom.js";
import { t } from "../i18n/index.js";
import { recall, remember } from "../prefs.js";
import { Attachments } from "./attachments.js";

const TALLEST = 220; // px before the text scrolls inside its box

export class Composer {
  #busy = false;

  /** `onSend(text, { agent, model, attachments })`, `onStop()`. */
  constructor({ api, onSend, onStop }) {
    this.onSend = onSend;
    this.onStop = onStop;
    this.input = h("textarea", { rows: "1", placeholder: t("placeholder"), "aria-label": t("question"), title: t("sendHint"), enterkeyhint: "send" });
    this.input.addEventListener("input", () => this.#fit());
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || event.shiftKey || event.isComposing || event.keyCode === 229) return; // 229: an input method still composes
      event.preventDefault();
      this.#submit();
    });
    this.agent = h("select", { "aria-label": t("agent"), hidden: true });
    this.model = h("select", { "aria-label": t("model"), hidden: true });
    for (const [name, field] of [["agent", this.agent], ["model", this.model]]) {
      field.append(h("option", { value: recall(name, "") })); // what was chosen before holds for a question sent before the choices have come
      field.addEventListener("change", () => remember(name, field.value));
    }
    const files = h("input", { type: "file", multiple: true, class: "visually-hidden", tabindex: "-1", "aria-hidden": "true" });
    files.addEventListener("change", () => { this.attachments.add([...files.files]); files.value = ""; });
    this.attachments = new Attachments({ api });
    this.button = h("button", { type: "submit", class: "send" });
    this.element = h(
      "form",
      { class: "composer" },
      this.attachments.element,
      this.input,
      h("div", { class: "composer-row" }, iconButton("clip", t("attach"), () => files.click()), files, this.agent, this.model, h("span", { class: "spring" }), this.button),
    );
    this.element.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#submit();
    });
    this.setBusy(false);
  }

  setBusy(busy) {
    this.#busy = busy;
    this.button.replaceChildren(icon(busy ? "stop" : "send"));
    this.button.setAttribute("aria-label", t(busy ? "stop" : "send"));
    this.button.title = t(busy ? "stop" : "send");
    this.button.classList.toggle("stopping", busy);
  }

  /** Offers agents and models; one choice is no choice and is not shown. */
  setChoices(agents, models) {
    fill(this.agent, t("defaultAgent"), agents.map((item) => [item.agent_id || item.name, item.name]), recall("agent", ""));
    fill(this.model, t("defaultModel"), models.map((item) => [item.id, item.id]), recall("model", ""));
  }

  /** Puts a question here to be changed, with the files that went with it. */
  setText(text, files = []) {
    this.input.value = text;
    this.attachments.restore(files);
    this.#fit();
    this.input.focus({ preventScroll: true });
  }

  async #submit() {
    if (this.#busy) return this.onStop();
    const text = this.input.value.trim();
    if (text === "") return undefined;
    this.input.value = "";
    this.#fit();
    const attachments = await this.attachments.take();
    return this.onSend(text, { agent: this.agent.value, model: this.model.value, attachments });
  }

  #fit() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, TALLEST)}px`;
  }
}

function fill(field, first, options, chosen) {
  field.replaceChildren(h("option", { value: "" }, first), ...options.map(([value, label]) => h("option", { value, selected: value === chosen }, label)));
  field.hidden = options.length < 2;
}

// What agents keep about the user: every memory can be erased, and all of them at once.

import { h, iconButton } from "../dom.js";
import { formatDay, t } from "../i18n/index.js";
import { confirmed } from "../render/confirm.js";
import { millis } from "../wire.js";

export class MemoriesPage {
  constructor(app) {
    this.app = app;
    this.body = h("section", { class: "panel memories" }, h("p", { class: "muted" }, t("loading")));
    this.erase = h("button", { type: "button", class: "button quiet", hidden: true, onclick: () => this.#eraseAll() }, t("eraseAll"));
    this.element = h("div", { class: "page" }, h("header", { class: "page-head" }, h("h1", {}, t("memories")), h("p", {}, t("memoriesIntro")), this.erase), this.body);
  }

  start() {
    document.title = `${t("memories")} · Proctor`;
    this.#load();
  }

  dispose() {}

  #load = async () => {
    try {
      const { memories = [] } = await this.app.api.memories();
      this.erase.hidden = memories.length === 0;
      this.body.replaceChildren(memories.length ? h("ul", { class: "rule-list" }, memories.map((memory) => this.#row(memory))) : h("p", { class: "muted" }, t("noMemories")));
    } catch (error) {
      this.body.replaceChildren(h("p", { class: "trouble" }, error.message));
    }
  };

  #row(memory) {
    const day = formatDay(millis(memory.created_at));
    const kept = memory.run_id ? h("a", { href: `/runs/${encodeURIComponent(memory.run_id)}` }, day) : day;
    return h("li", {}, h("span", { class: "memory-words" }, memory.text), h("span", { class: "figures" }, kept), iconButton("trash", `${t("delete")}: ${memory.text}`, () => this.#change(t("eraseOne"), () => this.app.api.deleteMemory(memory.memory_id))));
  }

  #eraseAll() {
    return this.#change(t("eraseEvery"), () => this.app.api.deleteMemories());
  }

  async #change(question, send) {
    if (!(await confirmed(question, t("delete")))) return;
    try {
      await send();
    } catch (error) {
      this.app.shell.tell(error.message);
    }
    await this.#load();
  }
}

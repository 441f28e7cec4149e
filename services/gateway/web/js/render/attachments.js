// Files that go with the next message: stored as soon as they are chosen, named by id when the question is sent.

import { h, iconButton } from "../dom.js";
import { formatBytes, t } from "../i18n/index.js";

const MOST = 32; // attachments of one message, as the API allows

export class Attachments {
  #items = []; // { file, id, element, done }

  constructor({ api }) {
    this.api = api;
    this.element = h("ul", { class: "attachments", "aria-label": t("attachments"), hidden: true });
  }

  add(files) {
    for (const file of files.slice(0, MOST - this.#items.length)) this.#items.push(this.#start(file));
    this.#changed();
  }

  /** The stored files as `{ id, name }`, once all have arrived; the list is empty afterwards. */
  async take() {
    await Promise.all(this.#items.map((item) => item.done));
    const files = this.#items.filter((item) => item.id).map((item) => ({ id: item.id, name: item.file.name }));
    this.#items = [];
    this.element.replaceChildren();
    this.#changed();
    return files;
  }

  /** Takes up files that are stored already, as when a question is edited. */
  restore(files) {
    for (const { id, name } of files) {
      const item = { file: { name }, id, done: Promise.resolve() };
      this.#show(item, h("span", { class: "muted" }));
      this.#items.push(item);
    }
    this.#changed();
  }

  #start(file) {
    const state = h("span", { class: "muted" }, formatBytes(file.size));
    const item = { file, id: null };
    this.#show(item, state);
    item.done = this.api.attach(file).then(
      (artifact) => { item.id = artifact.artifact_id; },
      (error) => {
        item.element.dataset.tone = "bad";
        state.textContent = error.message;
      },
    ).then(() => this.#changed());
    return item;
  }

  #show(item, state) {
    const { name } = item.file;
    item.element = h("li", {}, h("span", { class: "upload-name", title: name }, name), state, iconButton("close", `${t("removeAttachment")}: ${name}`, () => this.#remove(item)));
    this.element.append(item.element);
  }

  #remove(item) {
    this.#items = this.#items.filter((other) => other !== item);
    item.element.remove();
    this.#changed();
  }

  #changed() {
    this.element.hidden = this.#items.length === 0;
  }
}

// Dropped and chosen files on their way into a source, each with its own progress and its own error.

import { h, iconButton } from "../dom.js";
import { formatBytes, t, word } from "../i18n/index.js";
import { recall, remember } from "../prefs.js";
import { messages } from "../sse.js";
import { uploadDocument } from "../upload.js";
import { bare } from "../wire.js";

const AT_ONCE = 3; // uploads that run side by side
const FIRST_SOURCE = "documents"; // made when there is no source yet

export class Uploads {
  #waiting = [];
  #running = 0;
  #depth = 0; // nested dragenter events

  constructor(app) {
    this.app = app;
    this.target = h("select", { "aria-label": t("uploadTo") });
    this.target.addEventListener("change", () => remember("source", this.target.value));
    this.list = h("ul", { class: "upload-list" });
    this.panel = h(
      "section",
      { class: "uploads", "aria-label": t("uploads"), hidden: true },
      h("header", {}, h("h2", {}, t("uploads")), h("label", {}, h("span", {}, t("uploadTo")), this.target), iconButton("close", t("close"), () => this.#close())),
      this.list,
    );
    this.veil = h("div", { class: "veil", hidden: true }, h("p", {}, t("dropHere")));
    this.element = h("div", {}, this.panel, this.veil);
    this.#listeners = { dragenter: this.#enter, dragleave: this.#leave, dragover: this.#over, drop: this.#drop };
    for (const [name, listener] of Object.entries(this.#listeners)) addEventListener(name, listener);
  }

  #listeners = {};

  dispose() {
    for (const [name, listener] of Object.entries(this.#listeners)) removeEventListener(name, listener);
  }

  /** Adds files to the chosen source; makes a first source when there is none. */
  async add(files, source = null) {
    if (files.length === 0) return;
    this.panel.hidden = false;
    const rows = files.map((file) => this.#row(file));
    this.list.prepend(...rows.map((row) => row.element));
    try {
      const into = await this.#chooseSource(source);
      this.#waiting.push(...rows.map((row) => ({ row, into })));
      this.#next();
    } catch (error) {
      for (const row of rows) row.fail(error.message);
    }
  }

  /** Brings a web page, with what it leads to on its own site, into a source. */
  async addSite(url, source) {
    this.panel.hidden = false;
    const row = this.#row({ name: url, size: null });
    this.list.prepend(row.element);
    let read = 0;
    let kept = 0;
    try {
      await this.#chooseSource(source);
      const response = await this.app.api.syncSite(source, { url, max_depth: 1 });
      for await (const { event, data } of messages(response.body)) {
        if (!data) continue;
        const told = JSON.parse(data);
        if (event === "error") throw new Error(told.detail);
        if (event === "page") {
          read += 1;
          if (["added", "changed", "unchanged"].includes(bare(told.outcome, "PAGE_OUTCOME_"))) kept += 1;
          row.busy(t("pagesRead", { n: read }));
        } else if (bare(told.state, "SITE_STATE_") === "failed") throw new Error(told.message);
        else if (bare(told.state, "SITE_STATE_") === "done") row.done([t("pagesSearchable", { n: kept }), told.message].filter(Boolean).join(" · "));
      }
    } catch (error) {
      row.fail(error.message);
    }
    dispatchEvent(new Event("proctor:ingested"));
  }

  async #chooseSource(wanted) {
    const { sources = [] } = await this.app.api.sources();
    const known = sources.map((item) => item.name);
    let chosen = wanted ?? (this.target.value || recall("source", ""));
    if (!known.includes(chosen)) chosen = known[0] ?? FIRST_SOURCE;
    if (!known.includes(chosen)) {
      await this.app.api.createSource(chosen);
      known.push(chosen);
    }
    this.target.replaceChildren(...known.map((name) => h("option", { value: name, selected: name === chosen }, name)));
    return chosen;
  }

  #next() {
    while (this.#running < AT_ONCE && this.#waiting.length > 0) {
      const { row, into } = this.#waiting.shift();
      this.#running += 1;
      this.#send(row, into).finally(() => {
        this.#running -= 1;
        this.#next();
        if (this.#running === 0) dispatchEvent(new Event("proctor:ingested"));
      });
    }
  }

  async #send(row, source) {
    try {
      const last = await uploadDocument({ source, file: row.file, headers: this.app.api.headers, onProgress: row.progress });
      row.finish(last);
    } catch (error) {
      row.fail(error.message);
    }
  }

  #row(file) {
    const state = h("span", { class: "upload-state" }, t("upload.waiting"));
    const bar = h("progress", { max: "1", value: "0", "aria-label": file.name });
    const element = h("li", {}, h("span", { class: "upload-name", title: file.name }, file.name), h("span", { class: "muted" }, file.size === null ? "" : formatBytes(file.size)), state, bar);
    const show = (text, tone) => {
      state.textContent = text;
      element.dataset.tone = tone;
    };
    return {
      file,
      element,
      progress: ({ state: name, sent }) => {
        bar.value = sent !== undefined ? sent * 0.6 : { queued: 0.62, parsing: 0.7, indexing: 0.85, embedding: 0.95, done: 1, failed: 1 }[name] ?? bar.value;
        show(word("upload", name), "busy");
      },
      busy: (text) => {
        bar.removeAttribute("value"); // nobody knows how many pages there are
        show(text, "busy");
      },
      done: (text) => {
        bar.value = 1;
        show(text, "good");
      },
      finish: (last) => {
        bar.value = 1;
        if (last.state === "failed") show(`${t("uploadFailed")}: ${last.message}`, "bad");
        else show(last.unchanged ? t("uploadUnchanged") : `${t("uploadDone")} · ${t("passages", { n: last.passages })}`, "good");
      },
      fail: (message) => {
        bar.value = 1;
        show(`${t("uploadFailed")}: ${message}`, "bad");
      },
    };
  }

  #close() {
    this.panel.hidden = true;
    if (this.#running === 0) this.list.replaceChildren();
  }

  #enter = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    this.#depth += 1;
    this.veil.hidden = false;
  };

  #leave = () => {
    this.#depth = Math.max(0, this.#depth - 1);
    if (this.#depth === 0) this.veil.hidden = true;
  };

  #over = (event) => {
    if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
  };

  #drop = (event) => {
    if (!event.dataTransfer?.types.includes("Files")) return;
    event.preventDefault();
    this.#depth = 0;
    this.veil.hidden = true;
    this.add([...event.dataTransfer.files]);
  };
}

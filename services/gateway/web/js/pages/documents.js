// Sources and their documents; files dropped anywhere are added.

import { h, iconButton } from "../dom.js";
import { formatBytes, formatDay, t, word } from "../i18n/index.js";
import { asked, confirmed } from "../render/confirm.js";
import { bare, integer, millis } from "../wire.js";

export class DocumentsPage {
  constructor(app) {
    this.app = app;
    this.body = h("div", { class: "sources" }, h("p", { class: "muted" }, t("loading")));
    this.element = h(
      "div",
      { class: "page" },
      h("header", { class: "page-head" }, h("h1", {}, t("documents")), h("p", {}, t("documentsIntro")), h("button", { type: "button", class: "button quiet", onclick: () => this.#newSource() }, t("newSource"))),
      this.body,
    );
  }

  start() {
    document.title = `${t("documents")} · Proctor`;
    addEventListener("proctor:ingested", this.#load);
    this.#load();
  }

  dispose() {
    removeEventListener("proctor:ingested", this.#load);
  }

  #load = async () => {
    try {
      const { sources = [] } = await this.app.api.sources();
      const lists = await Promise.all(sources.map((source) => this.app.api.documents(source.source_id).catch(() => ({}))));
      this.body.replaceChildren(...(sources.length ? sources.map((source, index) => this.#source(source, lists[index].documents ?? [])) : [h("p", { class: "muted" }, t("noSources"))]));
    } catch (error) {
      this.body.replaceChildren(h("p", { class: "trouble" }, error.message));
    }
  };

  #source(source, documents) {
    const files = h("input", { type: "file", multiple: true, class: "visually-hidden", tabindex: "-1", "aria-hidden": "true" });
    files.addEventListener("change", () => { this.app.shell.uploads.add([...files.files], source.name); files.value = ""; });
    return h(
      "section",
      { class: "source" },
      h(
        "header",
        {},
        h("h2", {}, source.name),
        h("span", { class: "muted figures" }, `${t("documentCount", { n: integer(source.documents) })} · ${t("passages", { n: integer(source.passages) })}`),
        h(
          "div",
          { class: "source-actions" },
          h("button", { type: "button", class: "button quiet", onclick: () => files.click() }, t("addFiles")),
          h("button", { type: "button", class: "button quiet", onclick: () => this.#addSite(source) }, t("addSite")),
        ),
        files,
      ),
      source.description ? h("p", { class: "muted" }, source.description) : null,
      documents.length === 0 ? h("p", { class: "muted" }, t("noDocuments")) : this.#table(source, documents),
    );
  }

  #table(source, documents) {
    const head = h("tr", {}, ["name", "state", "size", "added"].map((key) => h("th", { scope: "col" }, t(key))), h("th", {}, h("span", { class: "visually-hidden" }, t("delete"))));
    return h("div", { class: "table-frame" }, h("table", { class: "listing" }, h("thead", {}, head), h("tbody", {}, documents.map((item) => this.#row(source, item)))));
  }

  #row(source, item) {
    const state = bare(item.state, "DOCUMENT_STATE_");
    return h(
      "tr",
      {},
      h("td", {}, h("b", {}, item.title || item.path), item.title && item.title !== item.path ? h("span", { class: "muted" }, item.path) : null),
      h("td", { class: state === "failed" ? "trouble" : "" }, word("upload", state), item.reason ? h("span", { class: "muted" }, item.reason) : null),
      h("td", { class: "figures" }, formatBytes(integer(item.size))),
      h("td", { class: "figures" }, item.ingested_at ? formatDay(millis(item.ingested_at)) : ""),
      h("td", {}, iconButton("trash", `${t("delete")}: ${item.path}`, () => this.#delete(source, item))),
    );
  }

  async #delete(source, item) {
    if (!(await confirmed(t("deleteDocument", { name: item.title || item.path }), t("delete")))) return;
    await this.#change(() => this.app.api.deleteDocument(source.source_id, item.document_id));
  }

  async #addSite(source) {
    const url = await asked(t("siteAddress"), "https://", t("addSite"));
    if (url) await this.app.shell.uploads.addSite(url, source.name);
  }

  async #newSource() {
    const name = await asked(t("sourceName"), "", t("save"));
    if (name) await this.#change(() => this.app.api.createSource(name));
  }

  async #change(send) {
    try {
      await send();
    } catch (error) {
      this.app.shell.tell(error.message);
    }
    await this.#load();
  }
}

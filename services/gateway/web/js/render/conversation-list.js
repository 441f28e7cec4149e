// Conversations in the sidebar: search, rename, delete. A server without conversations lists them from its runs.

import { h, iconButton } from "../dom.js";
import { t } from "../i18n/index.js";
import { asked, confirmed } from "./confirm.js";

const MISSING = new Set([404, 405, 501]);

export class ConversationList {
  #items = [];
  #path = "";
  /** Whether the server keeps conversations, with titles and feedback. */
  stored = true;

  constructor(app) {
    this.app = app;
    this.search = h("input", { type: "search", placeholder: t("searchConversations"), "aria-label": t("searchConversations") });
    this.search.addEventListener("input", () => this.#draw());
    this.list = h("ul", { class: "conversation-list" });
    this.element = h("section", { class: "conversations", "aria-label": t("conversations") }, h("h2", {}, t("conversations")), this.search, this.list);
  }

  mark(path) {
    this.#path = path;
    this.#draw();
  }

  async refresh() {
    try {
      this.#items = await this.#load();
    } catch {
      return; // the list stays as it is until the next look
    }
    this.#draw();
  }

  async #load() {
    if (this.stored) {
      try {
        const reply = await this.app.api.conversations({ page_size: 100 });
        return (reply.conversations ?? []).map((item) => ({ id: item.conversation_id, title: item.title || item.preview || "…" }));
      } catch (error) {
        if (!MISSING.has(error.status)) throw error;
        this.stored = false;
      }
    }
    const reply = await this.app.api.runs({ page_size: 200 });
    const titles = new Map(); // runs come newest first: the order is the last activity, the title the first question
    for (const run of reply.runs ?? []) if (run.conversation_id) titles.set(run.conversation_id, run.question);
    return [...titles].map(([id, title]) => ({ id, title: title || "…" }));
  }

  #draw() {
    const wanted = this.search.value.trim().toLocaleLowerCase();
    const shown = this.#items.filter((item) => item.title.toLocaleLowerCase().includes(wanted));
    this.list.replaceChildren(...(shown.length > 0 ? shown.map((item) => this.#row(item)) : [h("li", { class: "muted" }, t("noConversations"))]));
    this.search.hidden = this.#items.length < 8;
  }

  #row({ id, title }) {
    const path = `/c/${encodeURIComponent(id)}`;
    const link = h("a", { href: path, title, "aria-current": path === this.#path ? "page" : null }, title);
    if (!this.stored) return h("li", {}, link);
    return h("li", {}, link, iconButton("edit", `${t("rename")}: ${title}`, () => this.#rename(id, title)), iconButton("trash", `${t("delete")}: ${title}`, () => this.#delete(id)));
  }

  async #rename(id, title) {
    const wanted = await asked(t("renameTo"), title, t("save"));
    if (wanted && wanted !== title) await this.#change(() => this.app.api.renameConversation(id, wanted));
  }

  async #delete(id) {
    if (!(await confirmed(t("deleteConversation"), t("delete")))) return;
    await this.#change(() => this.app.api.deleteConversation(id));
    if (this.#path === `/c/${encodeURIComponent(id)}`) this.app.go("/");
  }

  async #change(send) {
    try {
      await send();
    } catch (error) {
      this.app.shell.tell(error.message);
    }
    await this.refresh();
  }
}

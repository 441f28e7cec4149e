// Conversations in the sidebar: search, rename, delete. A server without conversations lists them from its runs.

import { h, iconButton } from "../dom.js";
import { t } from "../i18n/index.js";
import { asked, confirmed } from "./confirm.js";

const FEW = 8; // conversations below which nobody needs to search
const PAUSE = 200; // ms without a key after which a search begins
const MISSING = new Set([404, 405, 501]);

export class ConversationList {
  #items = [];
  #path = "";
  #typing = 0;
  #serial = 0;
  /** Whether the server keeps conversations, with titles and feedback. */
  stored = true;

  constructor(app) {
    this.app = app;
    this.search = h("input", { type: "search", placeholder: t("searchConversations"), "aria-label": t("searchConversations"), hidden: true });
    this.search.addEventListener("input", () => {
      clearTimeout(this.#typing);
      this.#typing = setTimeout(() => this.refresh(), PAUSE);
    });
    this.list = h("ul", { class: "conversation-list" });
    this.element = h("section", { class: "conversations", "aria-label": t("conversations") }, h("h2", {}, t("conversations")), this.search, this.list);
  }

  mark(path) {
    this.#path = path;
    this.#draw();
  }

  async refresh() {
    const serial = (this.#serial += 1);
    const query = this.search.value.trim();
    try {
      const items = await this.#load(query);
      if (serial !== this.#serial) return; // more was typed meanwhile
      this.#items = items;
    } catch {
      return; // the list stays as it is until the next look
    }
    if (query === "") this.search.hidden = this.#items.length < FEW;
    this.#draw();
  }

  /** A server that keeps conversations finds them by title and by what was said in them. */
  async #load(query) {
    if (this.stored) {
      try {
        const reply = await this.app.api.conversations({ page_size: 100, query });
        return (reply.conversations ?? []).map((item) => ({ id: item.conversation_id, title: item.title || item.preview || "…" }));
      } catch (error) {
        if (!MISSING.has(error.status)) throw error;
        this.stored = false;
      }
    }
    const reply = await this.app.api.runs({ page_size: 200 });
    const titles = new Map(); // runs come newest first: the order is the last activity, the title the first question
    for (const run of reply.runs ?? []) if (run.conversation_id) titles.set(run.conversation_id, run.question);
    const wanted = query.toLocaleLowerCase();
    return [...titles].map(([id, title]) => ({ id, title: title || "…" })).filter((item) => item.title.toLocaleLowerCase().includes(wanted));
  }

  #draw() {
    const none = t(this.search.value.trim() === "" ? "noConversations" : "noneFound");
    this.list.replaceChildren(...(this.#items.length > 0 ? this.#items.map((item) => this.#row(item)) : [h("li", { class: "muted" }, none)]));
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

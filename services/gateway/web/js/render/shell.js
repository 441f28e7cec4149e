// What surrounds every page: navigation, conversations, language, theme, banner, uploads, the voice for screen readers.

import { h, icon, iconButton } from "../dom.js";
import { currentLanguage, LANGUAGES, t } from "../i18n/index.js";
import { applyTheme, recall, remember } from "../prefs.js";
import { ConversationList } from "./conversation-list.js";
import { Uploads } from "./uploads.js";

const THEMES = ["system", "light", "dark"];
const PLACES = [["ask", "/", "ask"], ["runs", "/runs", "runs"], ["approvals", "/approvals", "approvals"], ["documents", "/sources", "documents"], ["agents", "/agents", "agents"], ["usage", "/usage", "usage"]];
const BADGE_EVERY = 10_000; // ms between looks at how many approvals wait

export class Shell {
  #timer;

  constructor(app) {
    this.app = app;
    this.main = h("main", { id: "main", tabindex: "-1" });
    this.banner = h("div", { class: "banner", role: "status", hidden: true });
    this.voice = h("div", { class: "visually-hidden", "aria-live": "polite", role: "log" });
    this.badge = h("span", { class: "count", hidden: true });
    this.conversations = new ConversationList(app);
    this.uploads = new Uploads(app);
    this.links = new Map(PLACES.map(([name, path, drawing]) => [name, this.#link(name, path, drawing)]));
    this.side = this.#side();
    this.elements = [
      h("a", { class: "skip", href: "#main" }, t("skip")),
      h("div", { class: "shell" }, this.#bar(), this.side, h("div", { class: "content" }, this.banner, this.main)),
      this.uploads.element,
      this.voice,
    ];
    this.#timer = setInterval(() => this.countApprovals(), BADGE_EVERY);
    this.countApprovals();
    this.conversations.refresh();
  }

  dispose() {
    clearInterval(this.#timer);
    this.uploads.dispose();
  }

  show(element, place, path) {
    this.closeMenu();
    this.tell("");
    this.main.replaceChildren(element);
    this.main.dataset.place = place;
    this.mark(place, path);
    scrollTo(0, 0);
  }

  showNothing() {
    this.main.replaceChildren(h("div", { class: "page" }, h("h1", {}, t("notFound")), h("p", {}, h("a", { href: "/" }, t("newQuestion")))));
  }

  mark(place, path) {
    for (const [name, link] of this.links) {
      if (name === place) link.setAttribute("aria-current", "page");
      else link.removeAttribute("aria-current");
    }
    this.conversations.mark(path);
  }

  /** Shows one line above the page; empty text takes it away. */
  tell(text) {
    this.banner.textContent = text;
    this.banner.hidden = text === "";
  }

  announce(text) {
    this.voice.append(h("p", {}, text));
    while (this.voice.childElementCount > 5) this.voice.firstChild.remove();
  }

  async countApprovals() {
    if (document.hidden) return;
    try {
      const reply = await this.app.api.approvals({ state: "pending", page_size: 100 });
      const count = (reply.approvals ?? []).length;
      this.badge.textContent = String(count);
      this.badge.hidden = count === 0;
      this.badge.setAttribute("aria-label", t("pendingCount", { n: count }));
    } catch {
      this.badge.hidden = true; // may not decide, or the service is away: no number
    }
  }

  closeMenu() {
    this.side?.classList.remove("open");
    this.menu?.setAttribute("aria-expanded", "false");
  }

  #link(name, path, drawing) {
    return h("a", { href: path, class: "place" }, icon(drawing), h("span", {}, t(name)), name === "approvals" ? this.badge : null);
  }

  #bar() {
    this.menu = iconButton("menu", t("menu"), () => {
      const open = this.side.classList.toggle("open");
      this.menu.setAttribute("aria-expanded", String(open));
      if (open) this.side.querySelector("a, button")?.focus();
    }, { "aria-expanded": "false", "aria-controls": "side" });
    return h("header", { class: "bar" }, this.menu, wordmark(), h("a", { href: "/", class: "icon-button", "aria-label": t("newQuestion"), title: t("newQuestion") }, icon("plus")));
  }

  #side() {
    const side = h(
      "aside",
      { class: "side", id: "side", "aria-label": t("menu") },
      h("div", { class: "side-head" }, wordmark()),
      h("a", { href: "/", class: "button new" }, icon("plus"), t("newQuestion")),
      h("nav", { "aria-label": t("navigation") }, [...this.links.values()]),
      this.conversations.element,
      h("div", { class: "side-foot" }, this.#languages(), this.#theme()),
    );
    side.addEventListener("keydown", (event) => {
      if (event.key !== "Escape" || !side.classList.contains("open")) return;
      this.closeMenu();
      this.menu.focus();
    });
    side.addEventListener("click", (event) => { if (event.target === side) this.closeMenu(); });
    return side;
  }

  #languages() {
    const field = h("select", { "aria-label": t("language") }, Object.entries(LANGUAGES).map(([tag, name]) => h("option", { value: tag, lang: tag, selected: tag === currentLanguage() }, name)));
    field.addEventListener("change", () => {
      remember("language", field.value);
      this.app.start();
    });
    return field;
  }

  #theme() {
    let theme = recall("theme", "system");
    const button = iconButton("theme", t(`theme.${theme}`), () => {
      theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
      remember("theme", theme);
      applyTheme(theme);
      button.title = t(`theme.${theme}`);
      button.setAttribute("aria-label", button.title);
      this.announce(button.title);
    });
    return button;
  }
}

function wordmark() {
  return h("a", { href: "/", class: "wordmark", "aria-label": "Proctor" }, h("span", { class: "bracket" }, "["), "Proctor", h("span", { class: "bracket" }, "]"));
}

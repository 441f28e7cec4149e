// Start: language, theme, shell, routes.

import { Api } from "./api.js";
import { useLanguage } from "./i18n/index.js";
import { AgentPage } from "./pages/agent.js";
import { AgentsPage } from "./pages/agents.js";
import { ApprovalsPage } from "./pages/approvals.js";
import { ChatPage } from "./pages/chat.js";
import { DocumentsPage } from "./pages/documents.js";
import { MemoriesPage } from "./pages/memories.js";
import { RunPage } from "./pages/run.js";
import { RunsPage } from "./pages/runs.js";
import { UsagePage } from "./pages/usage.js";
import { applyTheme, recall } from "./prefs.js";
import { askForKey } from "./render/key-dialog.js";
import { Shell } from "./render/shell.js";

const ROUTES = [
  [/^\/(?:c\/([^/]+))?$/, "ask", (app, conversation) => new ChatPage(app, conversation)],
  [/^\/runs$/, "runs", (app) => new RunsPage(app)],
  [/^\/runs\/([^/]+)$/, "runs", (app, run) => new RunPage(app, run)],
  [/^\/approvals$/, "approvals", (app) => new ApprovalsPage(app)],
  [/^\/agents$/, "agents", (app) => new AgentsPage(app)],
  [/^\/agents\/([^/]+)$/, "agents", (app, agent) => new AgentPage(app, agent)],
  [/^\/memories$/, "agents", (app) => new MemoriesPage(app)],
  [/^\/usage$/, "usage", (app) => new UsagePage(app)],
  [/^\/sources$/, "documents", (app) => new DocumentsPage(app)],
];

class App {
  page = null;

  constructor() {
    this.api = new Api({ askKey: askForKey });
    this.start();
    addEventListener("popstate", () => this.show());
    document.addEventListener("click", (event) => this.#followLink(event));
  }

  /** Builds the shell, again after a change of language. */
  start() {
    useLanguage(recall("language", null));
    applyTheme(recall("theme", "system"));
    this.page?.dispose();
    this.page = null;
    this.shell?.dispose();
    this.shell = new Shell(this);
    document.body.replaceChildren(...this.shell.elements);
    this.show();
  }

  go(path) {
    if (path !== location.pathname) history.pushState(null, "", path);
    this.show();
  }

  /** Puts an address in the bar without leaving the page it belongs to. */
  rename(path) {
    if (path !== location.pathname) history.replaceState(null, "", path);
    this.shell.mark("ask", path);
  }

  /** Who calls and what they may do; nobody in particular when the server does not say. */
  me() {
    this.caller ??= this.api.me().catch(() => ({ scopes: [] }));
    return this.caller;
  }

  now = () => Date.now() + this.api.clockOffset;

  show() {
    const path = location.pathname.replace(/\/+$/, "") || "/";
    for (const [pattern, place, make] of ROUTES) {
      const match = pattern.exec(path);
      if (!match) continue;
      this.page?.dispose();
      this.page = make(this, match[1] && decodeURIComponent(match[1]));
      this.shell.show(this.page.element, place, path);
      this.page.start();
      return;
    }
    this.shell.showNothing();
  }

  #followLink(event) {
    const link = event.target instanceof Element ? event.target.closest("a[href]") : null;
    if (!link || event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || link.target) return;
    const url = new URL(link.href, location.href);
    if (url.origin !== location.origin || !ROUTES.some(([pattern]) => pattern.test(url.pathname))) return;
    event.preventDefault();
    if (!url.hash || url.pathname !== location.pathname) this.go(url.pathname);
  }
}

new App();

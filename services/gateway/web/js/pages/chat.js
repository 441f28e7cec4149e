// Asking: one conversation, its turns, the dock of decisions and the composer.

import { pendingApprovals } from "../fold.js";
import { h } from "../dom.js";
import { currentLanguage, t } from "../i18n/index.js";
import { newId } from "../ids.js";
import { recall } from "../prefs.js";
import { Composer } from "../render/composer.js";
import { Dock } from "../render/dock.js";
import { examples } from "./examples.js";
import { REPLACES, turnsOf } from "./standing.js";
import { Turn } from "./turn-session.js";

const LISTED_QUESTION = 200; // characters of a question that a list of runs shows; one this long may have been cut
const AIR = 24; // px between the end of the text and the composer

export class ChatPage {
  #turns = [];
  #frame = 0;
  #clock = 0;
  #left = false;
  #busy = false;
  #following = true;
  #scrollTop = 0;
  #editing = null; // turn that the next question replaces

  constructor(app, conversationId) {
    this.app = app;
    this.conversationId = conversationId ?? "";
    this.turns = h("div", { class: "turns" });
    this.greeting = h("div", { class: "greeting", hidden: true });
    this.dock = new Dock({
      decide: (approval, body) => this.#decide(approval, body),
      now: app.now,
      announce: (text) => app.shell.announce(text),
    });
    this.composer = new Composer({
      api: app.api,
      onSend: (text, choice) => {
        const replaced = this.#editing;
        this.#editing = null;
        return this.ask(text, choice, replaced);
      },
      onStop: () => this.#stop(),
    });
    this.foot = h("div", { class: "foot" }, this.dock.element, this.composer.element);
    this.element = h(
      "div",
      { class: "chat" },
      h("h1", { class: "visually-hidden" }, t("ask")),
      this.greeting,
      this.turns,
      this.foot,
    );
  }

  start() {
    document.title = "Proctor";
    this.#clock = setInterval(() => this.#tick(), 200);
    addEventListener("online", this.#online);
    addEventListener("scroll", this.#scrolled, { passive: true });
    addEventListener("offline", this.#offline);
    this.#loadChoices();
    if (this.conversationId) this.#load();
    else this.composer.input.focus({ preventScroll: true });
  }

  dispose() {
    this.#left = true;
    clearInterval(this.#clock);
    cancelAnimationFrame(this.#frame);
    removeEventListener("online", this.#online);
    removeEventListener("scroll", this.#scrolled);
    removeEventListener("offline", this.#offline);
    for (const turn of this.#turns) turn.leave();
    this.dock.dispose();
  }

  /** Asks in this conversation. It takes the place of the turn `replaced` and all after it, when given. */
  async ask(text, { agent = recall("agent", ""), model = recall("model", ""), attachments = [] } = {}, replaced = null) {
    if (replaced) this.#dropFrom(replaced);
    const turn = this.#addTurn(text, { attachments });
    this.#busy = true;
    this.composer.setBusy(true);
    this.#following = true;
    turn.shown.element.scrollIntoView({ block: "start", behavior: "smooth" });
    const body = { request_id: newId(), input: text };
    const wanted = { conversation_id: this.conversationId, agent_id: agent, model, supersede_message_id: replaced?.view.userMessageId };
    for (const [name, value] of Object.entries(wanted)) if (value) body[name] = value;
    if (attachments.length > 0) body.attachments = attachments.map((file) => file.id);
    if (replaced?.view.runId) body.labels = { [REPLACES]: replaced.view.runId };
    await turn.ask(body);
  }

  #addTurn(question, { whole = true, rating = "", attachments = [] } = {}) {
    const turn = new Turn({
      api: this.app.api,
      question,
      whole,
      rating,
      attachments,
      onChange: (changed) => this.#changed(changed),
      onConnection: (state) => this.#connection(state),
      actions: { mayRate: () => this.app.shell.conversations.stored, again: (asked) => this.ask(asked.question, { attachments: asked.attachments }, asked), edit: (asked) => this.#edit(asked) },
    });
    this.#turns.push(turn);
    this.turns.append(turn.shown.element);
    this.greeting.hidden = true;
    return turn;
  }

  /** Takes away this turn and all after it. */
  #dropFrom(first) {
    const index = this.#turns.indexOf(first);
    if (index < 0) return;
    for (const turn of this.#turns.splice(index)) {
      turn.leave();
      turn.shown.element.remove();
    }
  }

  #edit(turn) {
    this.#editing = turn;
    this.composer.setText(turn.question, turn.attachments);
  }

  #changed(turn) {
    if (turn.view.conversationId && !this.conversationId) {
      this.conversationId = turn.view.conversationId;
      this.app.rename(`/c/${encodeURIComponent(this.conversationId)}`);
      this.app.shell.conversations.refresh();
    }
    this.#frame ||= requestAnimationFrame(() => this.#draw());
  }

  #draw() {
    this.#frame = 0;
    if (this.#left) return;
    for (const turn of this.#turns) turn.draw();
    const last = this.#turns.at(-1);
    const busy = Boolean(last) && !last.ended;
    this.dock.update(this.#turns.flatMap((turn) => pendingApprovals(turn.view)));
    if (this.#busy !== busy) this.#settled(busy, last);
    if (busy) this.#follow(last);
    if (last) document.title = `${last.question.slice(0, 60)} · Proctor`;
  }

  /** Keeps the end of the text in sight while it grows, until the reader scrolls up. */
  #follow(turn) {
    const hidden = turn.shown.end - this.foot.getBoundingClientRect().top + AIR;
    if (this.#following && hidden > 0) scrollBy(0, hidden);
  }

  #scrolled = () => {
    if (scrollY < this.#scrollTop - 4) this.#following = false;
    const last = this.#turns.at(-1);
    if (last && last.shown.end < this.foot.getBoundingClientRect().top) this.#following = true;
    this.#scrollTop = scrollY;
  };

  #settled(busy, last) {
    this.#busy = busy;
    this.composer.setBusy(busy);
    if (busy || !last) return;
    this.app.shell.tell("");
    this.app.shell.announce(t(last.view.phase === "completed" ? "answerComplete" : "answerFailed"));
    this.app.shell.conversations.refresh();
  }

  #tick() {
    for (const turn of this.#turns) turn.shown.tick(this.app.now());
  }

  async #decide(approval, body) {
    await this.app.api.decide(approval.approvalId, body);
    for (const turn of this.#turns) turn.nudge();
    this.app.shell.countApprovals();
  }

  #stop() {
    for (const turn of this.#turns) turn.stop().catch((error) => this.app.shell.tell(error.message));
  }

  #connection(state) {
    if (state === "live") this.app.shell.tell("");
    else this.app.shell.tell(t(navigator.onLine ? "lost" : "offline"));
  }

  #online = () => {
    for (const turn of this.#turns) turn.nudge();
  };

  #offline = () => {
    if (this.#turns.some((turn) => !turn.ended)) this.app.shell.tell(t("offline"));
  };

  async #load() {
    try {
      const [reply, kept] = await Promise.all([
        this.app.api.runs({ conversation_id: this.conversationId, page_size: 200 }),
        this.#kept(),
      ]);
      if (this.#left) return;
      const turns = turnsOf((reply.runs ?? []).reverse(), kept, LISTED_QUESTION);
      if (turns.length === 0) this.app.shell.tell(t("notFound"));
      await Promise.all(turns.map((turn) => this.#addTurn(turn.question, turn).attach(turn.runId)));
    } catch (error) {
      this.app.shell.tell(error.message);
    }
  }

  /** The messages in force; none while the first run works or after a deletion; null when the server keeps no conversations. */
  async #kept() {
    try {
      return (await this.app.api.conversation(this.conversationId)).messages ?? [];
    } catch (error) {
      return error.reason === "CONVERSATION_NOT_FOUND" ? [] : null;
    }
  }

  async #loadChoices() {
    const { api } = this.app;
    const [agents, models, sources] = await Promise.all([
      api.agents().then((reply) => reply.agents ?? [], () => []),
      api.models().then((reply) => (reply.data ?? []).filter((item) => !item.id.startsWith("agent/")), () => []),
      api.sources().then((reply) => reply.sources ?? [], () => []),
    ]);
    if (this.#left) return;
    this.composer.setChoices(agents, models);
    if (!this.conversationId && this.#turns.length === 0) this.#greet(sources, models);
  }

  #greet(sources, models) {
    const offered = examples(sources, models, currentLanguage());
    this.greeting.replaceChildren(
      h("p", { class: "greeting-title" }, t("greeting")),
      h("p", { class: "greeting-text" }, t("greetingText")),
      sources.length === 0
        ? h("p", { class: "muted" }, t("noSources"))
        : h("p", { class: "reads" }, h("span", {}, t("readsFrom")), sources.slice(0, 8).map((source) => h("a", { href: "/sources", class: "source-tag" }, source.name, h("small", {}, t("documentCount", { n: Number(source.documents ?? 0) }))))),
      offered.length === 0
        ? null
        : h("div", { class: "examples" }, h("p", { class: "eyebrow" }, t("tryOne")), h("ul", {}, offered.map((text) => h("li", {}, h("button", { type: "button", class: "example", onclick: () => this.composer.setText(text) }, text))))),
    );
    this.greeting.hidden = false;
  }
}


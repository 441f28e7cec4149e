// One question and everything that came of it.

import { answerText, TERMINAL } from "../fold.js";
import { h, icon, iconButton } from "../dom.js";
import { formatNumber, t } from "../i18n/index.js";
import { attachedList } from "./attached.js";
import { Citations } from "./citations.js";
import { copyText, enhanceCode, enhanceFormulas } from "./enhance.js";
import { Files } from "./files.js";
import { MarkdownView } from "./markdown.js";
import { Notes } from "./notes.js";
import { Steps } from "./steps.js";

const LONG_QUESTION = 140; // characters above which the question is set smaller

export class TurnView {
  #view = null;
  #shownText = "";

  /** `actions`: regenerate(), edit(), and feedback("good" | "bad" | "none") when mayRate() says so. Each may be missing. */
  constructor({ question, api, rating = "", attachments = [], actions = {} }) {
    this.actions = actions;
    this.rating = rating;
    this.question = h("h2", { class: "question", tabindex: "-1" });
    this.steps = new Steps();
    this.notes = new Notes({ loadPassage: (id) => api.passage(id) });
    this.files = new Files({ loadArtifact: (id) => api.artifact(id) });
    this.text = h("div", { class: "prose" });
    this.citations = new Citations({ root: this.text, loadPassage: (id) => api.passage(id) });
    this.outcome = h("div", { class: "outcome", hidden: true });
    this.tools = h("footer", { class: "turn-tools", hidden: true });
    this.markdown = new MarkdownView(this.text, (block) => {
      this.citations.enhance(block);
      enhanceCode(block);
      enhanceFormulas(block);
    });
    this.answered = h("div", { class: "answered" }, this.steps.element, this.text, this.files.element, this.outcome, this.tools);
    this.element = h(
      "article",
      { class: "turn" },
      h("header", { class: "asked" }, h("p", { class: "visually-hidden" }, t("you")), this.question, attachedList(attachments, (id) => api.artifact(id)) ?? ""),
      this.answered,
      this.notes.element,
    );
    this.#setQuestion(question);
  }

  update(view) {
    const before = this.#view;
    if (before === view) return;
    this.#view = view;
    const running = !TERMINAL.has(view.phase);
    this.element.dataset.phase = view.phase;
    this.text.setAttribute("aria-busy", String(running));
    this.steps.update(view, running);
    if (view.evidence !== before?.evidence) {
      this.notes.update(view.evidence);
      this.element.classList.toggle("has-notes", view.evidence.length > 0);
    }
    if (view.evidence !== before?.evidence) this.citations.update(view.evidence); // before the text, whose new chips ask it
    const text = answerText(view);
    if (text !== this.#shownText) {
      this.markdown.update(text);
      this.#shownText = text;
      this.text.classList.toggle("writing", running && text !== "");
    }
    if (view.artifacts !== before?.artifacts) this.files.update(view.artifacts);
    if (!running && view.phase !== before?.phase) this.#finish(view, text);
  }

  /** Where the answer ends, in pixels from the top of the window. */
  get end() {
    return this.answered.getBoundingClientRect().bottom;
  }

  /** Shows the running clock. */
  tick(now) {
    if (this.#view && !TERMINAL.has(this.#view.phase)) this.steps.tick(now);
  }

  /** Replaces the question, for example when the journal knows it better. */
  ask(text) {
    this.#setQuestion(text);
  }

  /** A failure before the run existed. */
  refuse(message) {
    this.element.dataset.phase = "failed";
    this.steps.element.hidden = true;
    this.#showOutcome("failed", t("failed"), message);
    this.#offerTools("", null);
  }

  #setQuestion(text) {
    if (this.question.textContent === text) return;
    this.question.textContent = text;
    this.notes.name(text);
    this.question.classList.toggle("command", text.startsWith("/"));
    this.question.classList.toggle("long", text.length > LONG_QUESTION || text.includes("\n"));
  }

  #finish(view, text) {
    this.text.classList.remove("writing");
    if (view.phase === "failed") {
      const hint = view.failure?.retryable ? ` ${t("failedRetry")}` : "";
      this.#showOutcome("failed", t("failed"), `${view.failure?.message ?? ""}${hint}`);
    } else if (view.phase === "cancelled") {
      this.#showOutcome("cancelled", view.cancelledBy ? t("cancelledBy", { who: view.cancelledBy }) : t("cancelled"), "");
    } else if (text === "") this.#showOutcome("empty", t("emptyAnswer"), "");
    this.#offerTools(text, view);
  }

  #showOutcome(kind, title, message) {
    this.outcome.className = `outcome outcome-${kind}`;
    this.outcome.replaceChildren(icon(kind === "failed" ? "warn" : "stop"), h("div", {}, h("b", {}, title), message ? h("p", {}, message) : null));
    this.outcome.hidden = false;
  }

  #offerTools(text, view) {
    const { regenerate, edit, feedback, mayRate = () => false } = this.actions;
    const copy = h("button", { type: "button", class: "link", onclick: () => copyText(text, copy) }, t("copy"));
    const usage = view?.result?.usage;
    const tokens = Number(usage?.input_tokens ?? 0) + Number(usage?.output_tokens ?? 0);
    this.tools.replaceChildren(
      ...[
        text ? copy : null,
        regenerate ? iconButton("again", t("regenerate"), regenerate) : null,
        edit ? iconButton("edit", t("editQuestion"), edit) : null,
        text && mayRate() && view?.result?.messageId ? this.#feedbackButtons(feedback) : null,
        h("span", { class: "spring" }),
        tokens > 0 ? h("span", { class: "muted figures" }, t("tokens", { n: formatNumber(tokens) })) : null,
        view?.runId ? h("a", { href: `/runs/${encodeURIComponent(view.runId)}`, class: "link" }, t("details")) : null,
      ].flat().filter(Boolean),
    );
    this.tools.hidden = false;
  }

  /** Two buttons; pressing the one that is pressed takes the judgement back. */
  #feedbackButtons(feedback) {
    const buttons = { good: iconButton("up", t("good"), () => give("good")), bad: iconButton("down", t("bad"), () => give("bad")) };
    const show = () => {
      for (const [name, button] of Object.entries(buttons)) button.setAttribute("aria-pressed", String(name === this.rating));
    };
    const give = async (wanted) => {
      const before = this.rating;
      this.rating = wanted === before ? "" : wanted;
      show();
      try {
        await feedback(this.rating || "none");
      } catch (error) {
        this.rating = before;
        show();
        buttons[wanted].title = error.message;
      }
    };
    show();
    return Object.values(buttons);
  }
}

// The sources beside an answer: cited ones in full, those that were only read folded away.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";
import { kindBadge, passageCard, placeOf } from "./passage.js";
import { SyncedList } from "./sync.js";

export class Notes {
  #cited;
  #read;

  constructor({ loadPassage }) {
    this.loadPassage = loadPassage;
    const cited = h("ol", { class: "note-list" });
    const read = h("ol", { class: "note-list" });
    this.summary = h("summary", {});
    this.more = h("details", { class: "also-read" }, this.summary, read);
    this.element = h("aside", { class: "notes", "aria-label": t("sources"), hidden: true }, h("h3", {}, t("sources")), cited, this.more);
    this.#cited = new SyncedList(cited, { render: this.#note });
    this.#read = new SyncedList(read, { render: this.#note });
  }

  /** Names the sources by the question they answer: a conversation has one such list for each. */
  name(question) {
    this.element.setAttribute("aria-label", t("sourcesOf", { question: question.slice(0, 80) }));
  }

  update(evidence) {
    const decided = evidence.some((item) => item.cited);
    const cited = decided ? evidence.filter((item) => item.cited) : evidence;
    const rest = decided ? evidence.filter((item) => !item.cited) : [];
    this.#cited.update(cited);
    this.#read.update(rest);
    this.summary.textContent = t("alsoRead", { n: rest.length });
    this.more.hidden = rest.length === 0;
    this.element.hidden = evidence.length === 0;
  }

  #note = (evidence) => {
    const details = h("details", { class: "note", dataset: { number: evidence.number } });
    const head = h(
      "summary",
      {},
      h("span", { class: "note-number" }, String(evidence.number)),
      h("span", { class: "note-title" }, evidence.title || "—"),
      h("span", { class: "note-where" }, kindBadge(evidence.kind), placeOf(evidence)),
      h("span", { class: "note-excerpt" }, excerpt(evidence.text)),
    );
    details.append(head);
    details.addEventListener("toggle", () => {
      if (details.open && details.childElementCount === 1) details.append(passageCard(evidence, { loadPassage: this.loadPassage }));
    });
    return h("li", {}, details);
  };
}

/** The first words of a passage on one line, without headings; the bars of a table become dots. */
function excerpt(text) {
  return text.slice(0, 600).replace(/^#{1,6} .*$/gm, "").replace(/^\|[\s:|-]+\|\s*$/gm, "").replace(/\s*\|\s*/g, " · ").replace(/[·\s]{2,}/g, " · ").replace(/^[ ·]+/, "").slice(0, 220);
}

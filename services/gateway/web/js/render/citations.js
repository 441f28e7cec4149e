// Citation marks in rendered text become buttons that open the passage in place.

import { h } from "../dom.js";
import { t, word } from "../i18n/index.js";
import { passageCard } from "./passage.js";

let made = 0;

export class Citations {
  #evidence = new Map();

  constructor({ root, loadPassage }) {
    this.root = root;
    this.loadPassage = loadPassage;
  }

  /** Turns the marks in a new block into chips. */
  enhance = (block) => {
    for (const mark of block.querySelectorAll("span[data-cite]")) {
      const chip = h("button", { type: "button", class: "cite", "aria-expanded": "false" });
      chip.dataset.cite = mark.dataset.cite;
      chip.textContent = mark.dataset.cite;
      chip.addEventListener("click", () => this.#toggle(chip));
      chip.addEventListener("keydown", (event) => { if (event.key === "Escape" && chip.passage) this.#close(chip); });
      const holder = h("span", { class: "cite-holder" }, chip);
      mark.replaceWith(holder);
      bind(holder);
      this.#describe(chip);
    }
  };

  /** Tells which numbers exist; a number that does not is marked and opens nothing. */
  update(evidence) {
    this.#evidence = new Map(evidence.map((item) => [item.number, item]));
    for (const chip of this.root.querySelectorAll("button.cite")) this.#describe(chip);
  }

  #describe(chip) {
    const number = Number(chip.dataset.cite);
    const evidence = this.#evidence.get(number);
    chip.classList.toggle("unknown", !evidence);
    chip.classList.toggle("web", evidence?.kind === "web");
    chip.classList.toggle("summary", evidence?.kind === "summary");
    chip.disabled = !evidence;
    const label = evidence
      ? t("citation", { n: number, title: evidence.title, kind: word("kind", evidence.kind) })
      : t("citationUnknown", { n: number });
    chip.setAttribute("aria-label", label);
    chip.title = label;
  }

  #toggle(chip) {
    if (chip.passage) return this.#close(chip);
    const evidence = this.#evidence.get(Number(chip.dataset.cite));
    if (!evidence) return undefined;
    for (const open of this.root.querySelectorAll("button.cite[aria-expanded=true]")) this.#close(open, false);
    const id = `passage-${(made += 1)}`;
    chip.passage = passageCard(evidence, { loadPassage: this.loadPassage, onClose: () => this.#close(chip), id, claim: claimOf(chip) });
    chip.passage.addEventListener("keydown", (event) => { if (event.key === "Escape") this.#close(chip); });
    place(chip, chip.passage);
    chip.setAttribute("aria-expanded", "true");
    chip.setAttribute("aria-controls", id);
    chip.passage.scrollIntoView({ block: "nearest", behavior: "smooth" });
    return undefined;
  }

  #close(chip, focus = true) {
    chip.passage?.remove();
    chip.passage = null;
    chip.setAttribute("aria-expanded", "false");
    chip.removeAttribute("aria-controls");
    if (focus) chip.focus();
  }
}

/** Puts the card right after the sentence's own block: inside a list item, below a paragraph, heading or table. */
function place(chip, card) {
  const block = chip.closest("li, p, .table-frame, h1, h2, h3, h4, h5, h6") ?? chip.closest(".block");
  if (block.localName === "li") block.append(card);
  else block.after(card);
}

/** The sentence that a chip stands in or right behind: its block's text up to the chip, from the last sentence end on. */
function claimOf(chip) {
  const block = chip.closest("li, p, td, h1, h2, h3, h4, h5, h6") ?? chip.closest(".block");
  const range = document.createRange();
  range.setStart(block, 0);
  range.setEndBefore(chip);
  const before = range.toString().replace(/\[?\b\d{1,3}\]?\s*$/, "").trim();
  return before.split(/(?<=[.!?])\s+(?=\p{Lu})|(?<=[\u3002\uff01\uff1f])/u).filter((piece) => piece.trim().length > 3).at(-1) ?? before;
}

const PUNCTUATION = /^[.,;:!?)\]\u3001\u3002\uff01\uff09\uff0c\uff1a\uff1b\uff1f]+/;

/** Keeps a chip on the line of the word before it and of the punctuation after it. */
function bind(holder) {
  const before = holder.previousSibling;
  if (before?.nodeType === Node.TEXT_NODE && !/\n$/.test(before.data)) {
    before.data = before.data.endsWith(" ") ? `${before.data.slice(0, -1)}\u00a0` : `${before.data}\u2060`;
  }
  const after = holder.nextSibling;
  const mark = after?.nodeType === Node.TEXT_NODE ? PUNCTUATION.exec(after.data)?.[0] : null;
  if (!mark) return;
  holder.append(mark);
  after.data = after.data.slice(mark.length);
}

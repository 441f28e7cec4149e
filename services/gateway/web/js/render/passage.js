// One piece of evidence, opened: number, kind, title, place, and the text exactly as the model read it.

import { h, iconButton, safeUrl } from "../dom.js";
import { t, word } from "../i18n/index.js";
import { MarkdownView } from "./markdown.js";
import { bestMatch, sentences } from "./support.js";
import { restoreTables } from "./tables.js";

export function kindBadge(kind) {
  return h("span", { class: `badge kind-${/^[a-z]+$/.test(kind) ? kind : "other"}` }, word("kind", kind));
}

/** Where in the document it stands, without the title that is shown anyway. */
export function placeOf({ title, where }) {
  return where.startsWith(title) ? where.slice(title.length).replace(/^\s*[>›/]\s*/, "") : where;
}

/**
 * `loadPassage(id)` fetches the whole passage; `onClose` makes the card closable; `claim` is the sentence that cites it, whose
 * support is marked.
 */
export function passageCard(evidence, { loadPassage, onClose = null, id = null, claim = "" }) {
  const body = h("div", { class: "passage-text", tabindex: "0" });
  const place = placeOf(evidence);
  showText(body, evidence.text, claim);
  const url = safeUrl(evidence.url || "about:blank");
  const actions = h("p", { class: "passage-actions" });
  if (evidence.passageId) actions.append(wholePassageButton(evidence, body, loadPassage, claim));
  if (url) actions.append(h("a", { href: url, target: "_blank", rel: "noopener noreferrer nofollow" }, t("openPage")));
  return h(
    "section",
    { class: "passage", id, "aria-label": t("citation", { n: evidence.number, title: evidence.title, kind: word("kind", evidence.kind) }) },
    h(
      "header",
      {},
      h("span", { class: "passage-number" }, String(evidence.number)),
      h("span", { class: "passage-title" }, h("b", {}, evidence.title || "—"), place ? h("span", {}, place) : null),
      kindBadge(evidence.kind),
      onClose ? iconButton("close", t("hidePassage"), onClose) : null,
    ),
    body,
    actions.hasChildNodes() ? actions : null,
  );
}

function wholePassageButton(evidence, body, loadPassage, claim) {
  const button = h("button", { type: "button", class: "link" }, t("wholePassage"));
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      const reply = await loadPassage(evidence.passageId);
      const passage = reply.passage ?? reply;
      showText(body, passage.text ?? "", claim);
      button.remove();
    } catch (error) {
      button.disabled = false;
      button.textContent = error.message;
    }
  });
  return button;
}

/** Headings and tables of a document are shown as such; everything else as the text it is. */
function showText(element, source, claim) {
  const text = restoreTables(source);
  element.replaceChildren();
  const structured = /^\|.*\|\s*\n\|[\s:|-]+\|/m.test(text) || /^#{1,6} \S/m.test(text);
  const support = structured ? showStructured(element, text, claim) : showVerbatim(element, text, claim);
  if (support) requestAnimationFrame(() => { element.scrollTop = support.offsetTop - element.offsetTop - 48; });
}

function showStructured(element, text, claim) {
  new MarkdownView(element, () => {}).update(text);
  const blocks = [...element.querySelectorAll("p, li, tr")].filter((block) => !block.querySelector("p, li"));
  const support = claim ? blocks[bestMatch(blocks.map((block) => block.textContent), claim)] : undefined;
  if (support?.childNodes.length === 1 && support.firstChild.nodeType === Node.TEXT_NODE) return markSentence(support, support.textContent, claim);
  support?.classList.add("support");
  return support;
}

function showVerbatim(element, text, claim) {
  const paragraph = h("p", { class: "verbatim" });
  element.append(paragraph);
  return markSentence(paragraph, text, claim);
}

/** Fills an element with a text and marks the sentence that supports the claim; returns the mark. */
function markSentence(element, text, claim) {
  const pieces = sentences(text);
  const chosen = claim ? bestMatch(pieces, claim) : -1;
  const nodes = pieces.map((piece, index) => (index === chosen ? h("mark", { class: "support" }, piece) : piece));
  element.replaceChildren(...nodes);
  return nodes[chosen];
}

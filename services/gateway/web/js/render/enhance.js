// What is added to rendered text after sanitising: highlighted code, copy buttons, formulas. Libraries load when first needed.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";
import { sanitized } from "./sanitize.js";

const LONGEST_CODE = 100_000; // characters; longer code stays plain
const LONGEST_FORMULA = 4_000;

let highlighter = null;
let typesetter = null;

export function enhanceCode(root) {
  for (const block of root.querySelectorAll("pre")) {
    const code = block.querySelector("code") ?? block;
    const text = code.textContent;
    block.tabIndex = 0;
    const language = (block.dataset.lang ?? "").toLowerCase();
    const copy = h("button", { type: "button", class: "copy-code", onclick: () => copyText(text, copy) }, t("copy"));
    const frame = h("figure", { class: "code" }, h("figcaption", {}, h("span", {}, language || t("code")), copy));
    block.replaceWith(frame);
    frame.append(block);
    highlight(code, text, language);
  }
}

/** Colours the code in `element`; leaves it as it is when the language is unknown. */
export async function highlight(element, text, language) {
  if (!language || text.length > LONGEST_CODE) return;
  highlighter ??= import("../../vendor/highlight.js").then((module) => module.default);
  const engine = await highlighter;
  if (!engine.getLanguage(language)) return;
  element.replaceChildren(sanitized(engine.highlight(text, { language, ignoreIllegals: true }).value));
}

export async function enhanceFormulas(root) {
  const places = [...root.querySelectorAll("[data-math]")].filter((place) => place.dataset.math.length <= LONGEST_FORMULA);
  if (places.length === 0) return;
  typesetter ??= import("../../vendor/katex.js").then(() => globalThis.katex);
  const engine = await typesetter;
  for (const place of places) {
    const displayMode = place.dataset.display === "1";
    try {
      engine.render(place.dataset.math, place, { output: "mathml", displayMode, trust: false, strict: "ignore", maxExpand: 200, maxSize: 20 });
    } catch {
      place.classList.add("formula-broken"); // the source stays readable
    }
  }
}

export async function copyText(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = t("copied");
  } catch {
    button.textContent = t("copyFailed");
  }
  setTimeout(() => { button.textContent = before; }, 1600);
}

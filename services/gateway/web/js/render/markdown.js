// Markdown to DOM, block by block, so that a growing answer re-renders only what changed.

import MarkdownIt from "../../vendor/markdown-it.js";
import { h } from "../dom.js";
import { t } from "../i18n/index.js";
import { citations } from "./cite-rule.js";
import { formulas } from "./math-rule.js";
import { sanitized } from "./sanitize.js";

const markdown = new MarkdownIt({ html: false, linkify: true, breaks: false, typographer: false })
  .disable("image") // a picture from anywhere would tell its server who reads; sandbox files are shown by us
  .use(citations)
  .use(formulas);

markdown.renderer.rules.fence = (tokens, index) => codeBlock(tokens[index].content, tokens[index].info.trim().split(/\s+/)[0]);
markdown.renderer.rules.code_block = (tokens, index) => codeBlock(tokens[index].content, "");
for (const name of ["th_open", "td_open"]) {
  markdown.renderer.rules[name] = (tokens, index, options, env, self) => {
    const align = /text-align:(right|center)/.exec(tokens[index].attrGet("style") ?? "")?.[1]; // style attributes are refused by the CSP
    tokens[index].attrs = align ? [["class", `align-${align}`]] : null;
    return self.renderToken(tokens, index, options);
  };
}

function codeBlock(content, language) {
  const escape = markdown.utils.escapeHtml;
  return `<pre data-lang="${escape(language)}"><code>${escape(content)}</code></pre>`;
}

const REREAD = 2; // blocks at the end that may still change

/**
 * Shows Markdown in `element`; `update(text)` keeps the nodes of unchanged blocks. `enhance(node)` is called on each new block.
 * While the text only grows, just its last two blocks are read again: a block that has begun (a lone "2") may yet turn out to
 * belong to the one before it ("2." of a list), and nothing reaches back further.
 */
export class MarkdownView {
  #blocks = []; // { source, node }
  #text = "";
  #tail = 0; // where the last block but one begins, in characters

  constructor(element, enhance) {
    this.element = element;
    this.enhance = enhance;
  }

  update(text) {
    const grows = this.#blocks.length > REREAD && text.startsWith(this.#text);
    const first = grows ? this.#blocks.length - REREAD : 0;
    const from = grows ? this.#tail : 0;
    const lines = text.slice(from).split("\n");
    const env = {};
    const groups = topLevelBlocks(markdown.parse(lines.join("\n"), env));
    groups.forEach((tokens, index) => this.#place(first + index, tokens, lines, env));
    for (const stale of this.#blocks.splice(first + groups.length)) stale.node.remove();
    const tailLine = groups.at(-REREAD)?.[0].map?.[0] ?? 0;
    this.#tail = from + lines.slice(0, tailLine).reduce((sum, line) => sum + line.length + 1, 0);
    this.#text = text;
  }

  #place(index, tokens, lines, env) {
    const source = fingerprint(tokens, lines);
    const known = this.#blocks[index];
    if (known?.source === source) return;
    const node = h("div", { class: "block" }, sanitized(markdown.renderer.render(tokens, markdown.options, env)));
    wrapTables(node);
    this.enhance(node);
    if (known) known.node.replaceWith(node);
    else this.element.append(node);
    this.#blocks[index] = { source, node };
  }
}

function topLevelBlocks(tokens) {
  const groups = [];
  let open = 0;
  for (const token of tokens) {
    if (open === 0) groups.push([]);
    groups.at(-1).push(token);
    open += token.nesting;
  }
  return groups;
}

/** What a block's look depends on: its lines, and its kind (the last line may turn a paragraph into a heading). */
function fingerprint(tokens, lines) {
  const [from, to] = tokens[0].map ?? [0, 0];
  return `${tokens[0].type}\n${lines.slice(from, to).join("\n")}`;
}

function wrapTables(node) {
  for (const table of node.querySelectorAll("table")) {
    const frame = h("div", { class: "table-frame", tabindex: "0", role: "group", "aria-label": t("table") });
    table.replaceWith(frame);
    frame.append(table);
  }
}

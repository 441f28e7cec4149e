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

/** Shows Markdown in `element`; `update(text)` keeps the nodes of unchanged blocks. `enhance(node)` is called on each new block. */
export class MarkdownView {
  #blocks = []; // { source, node }

  constructor(element, enhance) {
    this.element = element;
    this.enhance = enhance;
  }

  update(text) {
    const env = {};
    const groups = topLevelBlocks(markdown.parse(text, env));
    groups.forEach((tokens, index) => {
      const source = fingerprint(tokens, text);
      const known = this.#blocks[index];
      if (known?.source === source) return;
      const node = h("div", { class: "block" }, sanitized(markdown.renderer.render(tokens, markdown.options, env)));
      wrapTables(node);
      this.enhance(node);
      if (known) known.node.replaceWith(node);
      else this.element.append(node);
      this.#blocks[index] = { source, node };
    });
    for (const stale of this.#blocks.splice(groups.length)) stale.node.remove();
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
function fingerprint(tokens, text) {
  const [from, to] = tokens[0].map ?? [0, 0];
  return `${tokens[0].type}\n${text.split("\n", to).slice(from).join("\n")}`;
}

function wrapTables(node) {
  for (const table of node.querySelectorAll("table")) {
    const frame = h("div", { class: "table-frame", tabindex: "0", role: "region", "aria-label": t("table") });
    table.replaceWith(frame);
    frame.append(table);
  }
}

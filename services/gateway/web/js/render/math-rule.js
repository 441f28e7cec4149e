// Markdown-it rules for formulas: $…$ and \(…\) within a line, $$…$$ and \[…\] as blocks. Prices stay prices.

export function formulas(markdown) {
  markdown.inline.ruler.before("escape", "formula", inline);
  markdown.block.ruler.before("fence", "formula_block", block, { alt: ["paragraph", "reference", "blockquote", "list"] });
  const escape = markdown.utils.escapeHtml;
  markdown.renderer.rules.formula = (tokens, index) =>
    `<span data-math="${escape(tokens[index].content)}">${escape(tokens[index].content)}</span>`;
  markdown.renderer.rules.formula_block = (tokens, index) =>
    `<p><span data-math="${escape(tokens[index].content)}" data-display="1">${escape(tokens[index].content)}</span></p>`;
}

function inline(state, silent) {
  const rest = state.src.slice(state.pos, state.posMax);
  const match = /^\\\((.+?)\\\)/s.exec(rest) ?? dollars(rest, state.src[state.pos - 1]);
  if (!match) return false;
  if (!silent) state.push("formula", "", 0).content = match[1].trim();
  state.pos += match[0].length;
  return true;
}

/** `$x$` is a formula when it hugs its content and stands apart from words and digits: `$5 and $6` is not. */
function dollars(rest, before) {
  if (rest[0] !== "$" || (before && /[\w$\\]/.test(before))) return null;
  return (
    /^\$\$((?:\\.|[^$\\])+?)\$\$(?!\$)/s.exec(rest) ?? /^\$(?![\s$])((?:\\.|[^$\\\n])+?)(?<!\s)\$(?![\w$])/.exec(rest)
  );
}

function block(state, startLine, endLine, silent) {
  const lineAt = (line) => state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]).trim();
  const first = lineAt(startLine);
  const [open, close] = first.startsWith("$$") ? ["$$", "$$"] : first.startsWith("\\[") ? ["\\[", "\\]"] : [];
  if (!open) return false;
  const lines = [first.slice(open.length)];
  let line = startLine;
  while (!lines.at(-1).endsWith(close)) {
    line += 1;
    if (line >= endLine) return false; // not closed yet: text until it is
    lines.push(lineAt(line));
  }
  if (silent) return true;
  const content = lines.join("\n").slice(0, -close.length).trim();
  if (content === "") return false;
  const token = state.push("formula_block", "", 0);
  token.content = content;
  token.block = true;
  token.map = [startLine, line + 1];
  state.line = line + 1;
  return true;
}

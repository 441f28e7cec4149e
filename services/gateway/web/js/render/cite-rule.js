// Markdown-it rule: [1], [1, 3], [1-3], 【2】 become citation marks; links and footnote-like text stay what they are.

const MARK = /^(?:\[(\d{1,3}(?:\s*[,\uff0c、–-]\s*\d{1,3})*)\](?!\()|【(\d{1,3}(?:\s*[,\uff0c、–-]\s*\d{1,3})*)】)/;
const MOST = 12; // numbers in one mark; [1-999] is not a citation

export function citations(markdown) {
  markdown.inline.ruler.before("link", "citation", (state, silent) => {
    const first = state.src[state.pos];
    if (first !== "[" && first !== "【") return false;
    const match = MARK.exec(state.src.slice(state.pos, state.pos + 64));
    const numbers = match && expand(match[1] ?? match[2]);
    if (!numbers) return false;
    if (!silent) state.push("citation", "", 0).meta = numbers;
    state.pos += match[0].length;
    return true;
  });
  // The text rule stops only at characters it knows; 【 is not one of them.
  markdown.core.ruler.push("citation-wide", splitWideMarks);
  markdown.renderer.rules.citation = (tokens, index) =>
    tokens[index].meta.map((number) => `<span data-cite="${number}">[${number}]</span>`).join("");
}

function splitWideMarks(state) {
  for (const block of state.tokens) {
    if (block.type !== "inline") continue;
    block.children = block.children.flatMap((token) => (token.type === "text" && token.content.includes("【") ? split(token, state) : [token]));
  }
}

function split(token, state) {
  return token.content.split(/(【\d[\d\s,\uff0c、–-]*】)/).filter(Boolean).map((piece) => {
    const match = MARK.exec(piece);
    const numbers = match && expand(match[2] ?? "");
    const made = new state.Token(numbers ? "citation" : "text", "", 0);
    if (numbers) made.meta = numbers;
    else made.content = piece;
    return made;
  });
}

/** `"1, 3-5"` → [1, 3, 4, 5]; null when it is no list of citations. */
export function expand(list) {
  const numbers = [];
  for (const item of list.split(/\s*[,\uff0c、]\s*/)) {
    const [from, to = from] = item.split(/\s*[–-]\s*/).map(Number);
    if (!(from >= 1 && to >= from && to - from < MOST)) return null;
    for (let number = from; number <= to; number += 1) numbers.push(number);
  }
  return numbers.length > 0 && numbers.length <= MOST ? numbers : null;
}

// What an edit did to a text, line by line.

const MOST_LINES = 400; // of each side; longer texts count as replaced whole, since the table grows with their product

/** Lines of both texts in order, each `same`, `removed` or `added`; a longest common subsequence keeps what it can. */
export function lineDiff(before, after) {
  const left = before.split("\n");
  const right = after.split("\n");
  if (left.length > MOST_LINES || right.length > MOST_LINES) {
    return [...left.map((text) => ({ kind: "removed", text })), ...right.map((text) => ({ kind: "added", text }))];
  }
  const kept = common(left, right);
  const lines = [];
  let i = 0;
  let j = 0;
  while (i < left.length || j < right.length) {
    if (i < left.length && j < right.length && left[i] === right[j]) {
      lines.push({ kind: "same", text: left[i] });
      i += 1;
      j += 1;
    } else if (j >= right.length || (i < left.length && kept[i + 1][j] >= kept[i][j + 1])) {
      lines.push({ kind: "removed", text: left[i] });
      i += 1;
    } else {
      lines.push({ kind: "added", text: right[j] });
      j += 1;
    }
  }
  return lines;
}

/** kept[i][j]: how many lines of left from i on and right from j on can be kept. */
function common(left, right) {
  const kept = Array.from({ length: left.length + 1 }, () => new Uint16Array(right.length + 1));
  for (let i = left.length - 1; i >= 0; i -= 1) {
    for (let j = right.length - 1; j >= 0; j -= 1) {
      kept[i][j] = left[i] === right[j] ? kept[i + 1][j + 1] + 1 : Math.max(kept[i + 1][j], kept[i][j + 1]);
    }
  }
  return kept;
}

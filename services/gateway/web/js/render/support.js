// Which part of a passage supports a sentence: the one that shares most of its character pairs. Works for Chinese as for English.

const ENOUGH = 0.34; // similarity below which nothing is marked; a wrong mark is worse than none
const LONGEST = 20_000; // characters of a passage that are compared

/** The index of the text that best matches `claim`, or -1 when none is similar enough. */
export function bestMatch(texts, claim) {
  const wanted = pairs(claim);
  let best = -1;
  let score = ENOUGH;
  texts.forEach((text, index) => {
    const found = similarity(pairs(text), wanted);
    if (found > score) [best, score] = [index, found];
  });
  return best;
}

/** Sentences of a text; joined again they are the text. */
export function sentences(text) {
  return text.slice(0, LONGEST).split(/(?<=[.!?]\s)|(?<=[\u3002\uff01\uff1f\uff1b])|(?<=\n)/).filter((piece) => piece !== "").concat(text.length > LONGEST ? [text.slice(LONGEST)] : []);
}

function pairs(text) {
  const letters = text.toLowerCase().replace(/[^\p{L}\p{N}]+/gu, "");
  const found = new Map();
  for (let index = 0; index + 1 < letters.length; index += 1) {
    const pair = letters.slice(index, index + 2);
    found.set(pair, (found.get(pair) ?? 0) + 1);
  }
  return found;
}

/** How much of the shorter text stands in the other: overlap over the smaller size, so that a quotation counts fully. */
function similarity(a, b) {
  const size = (map) => [...map.values()].reduce((sum, count) => sum + count, 0);
  const [left, right] = [size(a), size(b)];
  if (left < 8 || right < 8) return 0;
  let shared = 0;
  for (const [pair, count] of a) shared += Math.min(count, b.get(pair) ?? 0);
  return (shared / Math.min(left, right)) * Math.min(1, (2 * Math.min(left, right)) / Math.max(left, right) + 0.4);
}

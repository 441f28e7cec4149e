// Questions offered on an empty page when the example handbook is among the sources.

const HANDBOOK = {
  en: ["What is the per diem for four days in Singapore?", "How do Harbour and Breakwater differ?", "Who approves a purchase of EUR 18,000?"],
  zh: ["去苏州出差 3 天补助多少？", "笔记本电脑的使用年限是几年？", "一类城市和三类城市的住宿上限相差多少？"],
};
const READER = '/python import matplotlib.pyplot as plt; plt.bar(["Rotterdam", "London", "Zurich"], [58, 72, 86]); plt.savefig("per-diem.png")';

/** Examples that fit what is there: the handbook's questions, and code where the model is the keyless reader. */
export function examples(sources, models, language) {
  const handbook = sources.some((source) => source.name === "handbook") ? HANDBOOK[language] : [];
  const reader = models.some((model) => /\breader\b/.test(model.id)) ? [READER] : [];
  return [...handbook, ...reader];
}

// The page's words. `t("key", { n: 3 })` fills `{n}`; a key with `one` and `other` chooses by `n`.

import en from "./en.js";
import zh from "./zh.js";

const WORDS = { en, zh };
let language = "en";

export const LANGUAGES = { en: "English", zh: "中文" };

/** Chooses the language: what was chosen before, else what the browser prefers. */
export function useLanguage(chosen) {
  const preferred = navigator.languages?.find((tag) => /^(en|zh)\b/i.test(tag)) ?? "en";
  language = Object.hasOwn(WORDS, chosen ?? "") ? chosen : preferred.slice(0, 2).toLowerCase();
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
}

export function currentLanguage() {
  return language;
}

export function t(key, values = {}) {
  const found = WORDS[language][key] ?? en[key] ?? key;
  const text = typeof found === "string" ? found : values.n === 1 ? found.one : found.other;
  return text.replace(/\{(\w+)\}/g, (_, name) => String(values[name] ?? ""));
}

/** A word for a value of a closed set, or the value itself: `word("state", "denied")`. */
export function word(family, value) {
  const key = `${family}.${value}`;
  const text = t(key);
  return text === key ? value : text;
}

export function formatNumber(value, digits = 0) {
  return new Intl.NumberFormat(document.documentElement.lang, { maximumFractionDigits: digits }).format(value);
}

/** `0.84 s`, `12.3 s`, `4 min 10 s`. */
export function formatSeconds(value) {
  if (value === null || value === undefined) return "";
  if (value < 0.001) return "0 s";
  if (value < 0.1) return `${Math.round(value * 1000)} ms`;
  if (value < 10) return `${value.toFixed(2)} s`;
  if (value < 100) return `${value.toFixed(1)} s`;
  const whole = Math.round(value);
  return `${Math.floor(whole / 60)} min ${whole % 60} s`;
}

export function formatTime(milliseconds) {
  const options = { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false };
  return new Intl.DateTimeFormat(document.documentElement.lang, options).format(milliseconds);
}

export function formatDay(milliseconds) {
  const options = { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hour12: false };
  return new Intl.DateTimeFormat(document.documentElement.lang, options).format(milliseconds);
}

export function formatBytes(bytes) {
  if (bytes < 1000) return `${bytes} B`;
  if (bytes < 1_000_000) return `${formatNumber(bytes / 1000, 1)} kB`;
  return `${formatNumber(bytes / 1_000_000, 1)} MB`;
}

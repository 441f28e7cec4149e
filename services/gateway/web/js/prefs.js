// What this browser remembers: theme, language, the conversation's run to re-attach to. Storage may be refused.

export function remember(name, value) {
  try {
    if (value === null) localStorage.removeItem(`proctor.${name}`);
    else localStorage.setItem(`proctor.${name}`, JSON.stringify(value));
  } catch {
    // private mode or a full disk: the page works without memory
  }
}

export function recall(name, fallback) {
  try {
    return JSON.parse(localStorage.getItem(`proctor.${name}`)) ?? fallback;
  } catch {
    return fallback;
  }
}

/** Applies `system`, `light` or `dark`. */
export function applyTheme(theme) {
  if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  else delete document.documentElement.dataset.theme;
}

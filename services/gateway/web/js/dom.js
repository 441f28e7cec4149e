// Building DOM without HTML strings.

/**
 * `h("button", { class: "chip", "aria-label": "…", onclick: f }, "text", node, null)`. Properties that begin with `on` are
 * listeners, `dataset` is an object, true and false set and leave out an attribute; children that are strings become text.
 */
export function h(tag, properties = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "dataset") Object.assign(element.dataset, value);
    else if (name === "class") element.className = value;
    else element.setAttribute(name, value === true ? "" : String(value));
  }
  element.append(...children.flat(Infinity).filter((child) => child !== null && child !== undefined && child !== false));
  return element;
}

const SVG = "http://www.w3.org/2000/svg";

/** Line drawings on a 20 × 20 grid, by name. */
const ICONS = {
  ask: "M4 5h12v8H9l-3.5 3v-3H4z",
  runs: "M3 6h7M3 10h11M3 14h5M13 6h4M17 10h0M11 14h6",
  approvals: "M10 3l6 2.5v4c0 3.6-2.5 6.2-6 7.5-3.5-1.3-6-3.9-6-7.5v-4zM7.5 10l2 2 3.5-4",
  documents: "M6 3h6l3 3v11H6zM12 3v3h3M8.5 10h4M8.5 13h4",
  agents: "M10 3v2.5M5 5.5h10v7H5zM8 8.5v1M12 8.5v1M8 15.5h4M10 12.5v3M2.5 8v2.5M17.5 8v2.5",
  usage: "M4 16V9M9 16V4M14 16v-5M3 16.5h14",
  send: "M10 16V4M5 9l5-5 5 5",
  stop: "M6 6h8v8H6z",
  plus: "M10 4v12M4 10h12",
  clip: "M14 9l-5 5a2.5 2.5 0 01-3.5-3.5l6-6a3.5 3.5 0 015 5l-6 6",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7 7V4h9v9h-3M4 7h9v9H4z",
  again: "M15.5 8A6 6 0 105 13.5M16 4v4h-4",
  edit: "M4 16l1-4 8-8 3 3-8 8zM11.5 5.5l3 3",
  up: "M6 9v7H4V9zM6 9l3-6c1.5 0 2 1 2 2l-.5 3H15c1 0 1.5 1 1.2 2l-1.2 5c-.2.6-.6 1-1.2 1H6",
  down: "M6 11V4H4v7zM6 11l3 6c1.5 0 2-1 2-2l-.5-3H15c1 0 1.5-1 1.2-2L15 5c-.2-.6-.6-1-1.2-1H6",
  theme: "M10 3a7 7 0 100 14 7 7 0 000-14zM10 3v14M10 6.5l5 2M10 10h7M10 13.5l5-1",
  menu: "M3 6h14M3 10h14M3 14h14",
  check: "M4 10.5l4 4 8-9",
  warn: "M10 3l7.5 13.5h-15zM10 8v4M10 14.2v.3",
  file: "M6 3h6l3 3v11H6zM12 3v3h3",
  trash: "M4 6h12M8 6V4h4v2M6 6l.7 10h6.6L14 6",
  link: "M8 12l4-4M9 6l1.5-1.5a3 3 0 014.2 4.2L13 10.5M11 14l-1.5 1.5a3 3 0 01-4.2-4.2L7 9.5",
};

/** An icon that says nothing to screen readers; the control around it carries the name. */
export function icon(name) {
  const svg = document.createElementNS(SVG, "svg");
  for (const [key, value] of Object.entries({ viewBox: "0 0 20 20", class: "icon", "aria-hidden": "true" })) svg.setAttribute(key, value);
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", ICONS[name]);
  svg.append(path);
  return svg;
}

/** A button with an icon and a name that is read out and shown as a tooltip. */
export function iconButton(name, label, onclick, properties = {}) {
  return h("button", { type: "button", class: "icon-button", "aria-label": label, title: label, onclick, ...properties }, icon(name));
}

/** Only web and mail addresses become links. */
export function safeUrl(text) {
  try {
    const url = new URL(text, location.origin);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

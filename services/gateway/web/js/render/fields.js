// Fields of a form with their labels, and what is wrong with each beside it.

import { h } from "../dom.js";
import { fieldOf } from "../agent-form-data.js";

export class Fields {
  #rows = new Map(); // path → the row of the field

  /** Forgets the fields below a path, whose rows are drawn anew. */
  forget(prefix) {
    for (const path of this.#rows.keys()) if (path.startsWith(prefix)) this.#rows.delete(path);
  }

  /** A labelled field under a path such as `budget.rounds`. */
  row(path, label, field, hint = "") {
    field.setAttribute("aria-label", label); // without the hint and without what is wrong
    const row = h("label", { class: "argument" }, h("span", {}, label), field, hint ? h("small", { class: "muted" }, hint) : null);
    this.#rows.set(path, row);
    return row;
  }

  /** A field within a row of many, labelled for those who do not see the head of its column. */
  cell(path, label, field) {
    field.setAttribute("aria-label", label);
    const cell = h("span", { class: "cell" }, field);
    this.#rows.set(path, cell);
    return cell;
  }

  clear() {
    for (const row of this.#rows.values()) {
      row.classList.remove("wrong");
      row.querySelector(".wrong-text")?.remove();
      row.querySelector("input, select, textarea")?.removeAttribute("aria-invalid");
    }
  }

  /** Tells each violation at its field, and returns those that have none. The first field that is wrong gets the focus. */
  show(violations) {
    this.clear();
    const rest = [];
    let first = null;
    for (const violation of violations) {
      const row = this.#find(fieldOf(violation));
      if (!row) {
        rest.push(violation);
        continue;
      }
      const field = row.querySelector("input, select, textarea");
      row.classList.add("wrong");
      field?.setAttribute("aria-invalid", "true");
      const told = row.querySelector(".wrong-text");
      if (told) told.textContent += ` ${violation.description}`;
      else row.append(h("span", { class: "wrong-text trouble", role: "alert" }, violation.description));
      first ??= field;
    }
    first?.closest("details")?.setAttribute("open", "");
    first?.focus();
    return rest;
  }

  /** The row of a path, else that of the nearest path above it. */
  #find(path) {
    for (let at = path; at; at = at.slice(0, Math.max(at.lastIndexOf("."), 0))) if (this.#rows.has(at)) return this.#rows.get(at);
    return null;
  }
}

export function text(value, set, properties = {}) {
  const field = h("input", { type: "text", autocomplete: "off", value, ...properties });
  field.addEventListener("input", () => set(field.value));
  return field;
}

export function number(value, set, properties = {}) {
  const field = h("input", { type: "number", min: "0", step: "1", inputmode: "numeric", value: value ?? null, ...properties });
  field.addEventListener("input", () => set(field.value.trim() === "" ? null : Number(field.value)));
  return field;
}

export function area(value, set, rows = 6) {
  const field = h("textarea", { spellcheck: "false", rows: String(rows) });
  field.value = value;
  field.addEventListener("input", () => set(field.value));
  return field;
}

export function box(value, set) {
  const field = h("input", { type: "checkbox", checked: value });
  field.addEventListener("change", () => set(field.checked));
  return field;
}

/** A choice of `[value, label]`; a value that is not among them is offered as it stands. */
export function choice(value, options, set, properties = {}) {
  const all = options.some(([each]) => each === value) ? options : [...options, [value, value]];
  const field = h("select", properties, all.map(([each, label]) => h("option", { value: each, selected: each === value }, label)));
  field.addEventListener("change", () => set(field.value));
  return field;
}

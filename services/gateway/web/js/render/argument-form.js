// Editing a call's arguments: a field for each simple property of its schema, JSON text for everything else.

import { h } from "../dom.js";
import { t } from "../i18n/index.js";

const SIMPLE = new Set(["string", "number", "integer", "boolean"]);

export class ArgumentForm {
  #fields = []; // { name, read }
  #first = null;

  constructor(value, schema) {
    this.element = h("div", { class: "argument-form" });
    const properties = schema?.properties ?? {};
    const names = [...new Set([...Object.keys(properties), ...Object.keys(value ?? {})])].filter((name) => name !== "reason");
    if (names.length === 0 || typeof value !== "object" || value === null) this.#addWhole(value);
    else for (const name of names) this.#add(name, value[name], properties[name] ?? {}, (schema?.required ?? []).includes(name));
  }

  /** The edited arguments; throws when a field is not valid JSON. */
  value() {
    const entries = this.#fields.map(({ name, read }) => [name, read()]);
    if (entries.length === 1 && entries[0][0] === null) return entries[0][1];
    return Object.fromEntries(entries.filter(([, item]) => item !== undefined));
  }

  focus() {
    this.#first?.focus({ preventScroll: true }); // the slip is in sight; the page behind it stays where it is
  }

  #addWhole(value) {
    const area = textArea(JSON.stringify(value ?? {}, null, 2), t("arguments"));
    this.#push(null, area, () => JSON.parse(area.value), t("arguments"));
  }

  #add(name, value, schema, required) {
    const type = typeof value === "string" ? "string" : schema.type;
    if (Array.isArray(schema.enum)) this.#addChoice(name, value, schema.enum, required);
    else if (type === "boolean") this.#addBox(name, value);
    else if (type === "string") this.#addText(name, value, required);
    else if (SIMPLE.has(type)) this.#addNumber(name, value);
    else this.#addJson(name, value);
  }

  #addText(name, value, required) {
    const long = name === "code" || (value ?? "").length > 60 || (value ?? "").includes("\n");
    const field = long ? textArea(value ?? "", name) : h("input", { type: "text", value: value ?? "" });
    this.#push(name, field, () => (field.value === "" && !required && value === undefined ? undefined : field.value));
  }

  #addNumber(name, value) {
    const field = h("input", { type: "number", step: "any", value: value ?? "" });
    this.#push(name, field, () => (field.value === "" ? undefined : Number(field.value)));
  }

  #addBox(name, value) {
    const field = h("input", { type: "checkbox", checked: Boolean(value) });
    this.#push(name, field, () => field.checked);
  }

  #addChoice(name, value, options, required) {
    const field = h("select", {}, required ? null : h("option", { value: "" }, "—"));
    options.forEach((option, index) => field.append(h("option", { value: String(index), selected: option === value }, String(option))));
    this.#push(name, field, () => (field.value === "" ? undefined : options[Number(field.value)]));
  }

  #addJson(name, value) {
    const area = textArea(value === undefined ? "" : JSON.stringify(value, null, 2), name);
    this.#push(name, area, () => (area.value.trim() === "" ? undefined : JSON.parse(area.value)));
  }

  #push(name, field, read, label = name) {
    this.#first ??= field;
    this.#fields.push({ name, read });
    this.element.append(h("label", { class: "argument" }, h("span", {}, label), field));
  }
}

function textArea(value, name) {
  const area = h("textarea", { spellcheck: "false", rows: String(Math.min(14, Math.max(3, value.split("\n").length + 1))), "aria-label": name });
  area.value = value;
  return area;
}

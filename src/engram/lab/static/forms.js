// A form of the fields of a dataclass, as `controls` of core/config.py describes them.

import { uniqueId, h } from "./dom.js";

const number = (text) => (text.trim() === "" ? NaN : Number(text));

// fields: list of `controls`; values: initial value of each name; change: called after every change with the name.
// Returns an element with values(), set(values) and showError(message), which marks the field that the message names.
export function form(fields, values, change, suggestions = {}) {
  const rows = fields.map((field) =>
    buildRow(field, values[field.name] ?? field.value, change, suggestions[field.name]),
  );
  const groups = new Map();
  rows.forEach((one) =>
    groups.set(one.field.group, [...(groups.get(one.field.group) ?? []), one.element]),
  );
  const sets = [...groups].map(([group, elements]) =>
    h(
      "fieldset",
      group && h("legend", group.replaceAll("_", " ")),
      h("div", { class: "fields" }, elements),
    ),
  );
  const element = h("div", { class: "form" }, sets);
  const find = (name) => rows.find((one) => one.field.name === name);
  return Object.assign(element, {
    values: () => Object.fromEntries(rows.map((one) => [one.field.name, one.read()])),
    set: (changes) => Object.entries(changes).forEach(([name, value]) => find(name)?.write(value)),
    showError: (message) =>
      rows.forEach((one) => one.showError(message && mentions(message, one.field) ? message : "")),
  });
}

const mentions = (message, field) =>
  new RegExp(`(^|[^a-z_-])(${field.name.replace(/_$/, "")}|${field.flag})([^a-z_-]|$)`, "i").test(
    message.slice(0, 60),
  );

function buildRow(field, value, change, suggested) {
  const id = uniqueId("field");
  const error = h("span", { class: "error", role: "alert" });
  const input = buildInput(field, id, suggested);
  write(input, field, value);
  input.addEventListener("input", () => {
    error.textContent = "";
    input.classList.remove("invalid");
    change(field.name);
  });
  const label = h("label", { for: id }, field.flag.replaceAll("-", " "));
  const help = h("span", { class: "soft" }, field.help + range(field));
  const list =
    suggested &&
    !(input instanceof HTMLSelectElement) &&
    h(
      "datalist",
      { id: `${id}-list` },
      suggested.map((one) => h("option", { value: one })),
    );
  const element = h(
    "div",
    { class: "field", data: { field: field.name } },
    field.kind === "bool" ? h("div", { class: "row" }, input, label) : [label, input],
    list,
    error,
    help,
  );
  return {
    field,
    element,
    read: () => read(input, field),
    write: (one) => write(input, field, one),
    showError: (message) => {
      error.textContent = message;
      input.classList.toggle("invalid", Boolean(message));
    },
  };
}

function range({ low, high, positive }) {
  if (positive) return high ? ` (above 0, up to ${high})` : " (above 0)";
  if (low === null || low === undefined) return high ? ` (up to ${high})` : "";
  return high === null || high === undefined ? ` (${low} or more)` : ` (${low} to ${high})`;
}

function buildInput(field, id, suggested) {
  if (field.kind === "choice")
    return h(
      "select",
      { id, name: field.name },
      field.options.map((one) => h("option", { value: one }, one)),
    );
  if (field.kind === "bool") return h("input", { id, name: field.name, type: "checkbox" });
  if (field.kind === "int" || field.kind === "float") {
    const step = field.kind === "int" ? 1 : "any";
    return h("input", {
      id,
      name: field.name,
      type: "number",
      step,
      min: field.low ?? false,
      max: field.high ?? false,
    });
  }
  return h("input", {
    id,
    name: field.name,
    type: "text",
    spellcheck: "false",
    list: suggested ? `${id}-list` : false,
  });
}

function write(input, field, value) {
  if (field.kind === "bool") input.checked = Boolean(value);
  else input.value = Array.isArray(value) ? value.join(" ") : value;
}

function read(input, field) {
  if (field.kind === "bool") return input.checked;
  if (field.kind === "int" || field.kind === "float") return number(input.value);
  if (field.kind === "numbers")
    return input.value
      .split(/[\s,]+/)
      .filter(Boolean)
      .map(Number);
  if (field.kind === "texts") return input.value.split(/\s+/).filter(Boolean);
  if (field.kind === "choice")
    return field.options.find((one) => String(one) === input.value) ?? input.value;
  return input.value;
}

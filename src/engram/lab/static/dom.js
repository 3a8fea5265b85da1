// Elements: h("p", { class: "soft" }, "text", h("b", "more")). Text is always text, never markup.

const SVG = "http://www.w3.org/2000/svg";
const SVG_NAMES = new Set([
  "svg",
  "path",
  "circle",
  "line",
  "rect",
  "g",
  "text",
  "title",
  "polyline",
  "defs",
  "marker",
]);

export function h(name, ...rest) {
  const element = SVG_NAMES.has(name)
    ? document.createElementNS(SVG, name)
    : document.createElement(name);
  const [first] = rest;
  const plain =
    first && typeof first === "object" && !(first instanceof Node) && !Array.isArray(first);
  if (plain) setAll(element, rest.shift());
  element.append(...present(rest));
  return element;
}

function setAll(element, attributes) {
  for (const [key, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) element.addEventListener(key.slice(2), value);
    else if (key === "style")
      Object.entries(value).forEach(([name, one]) => element.style.setProperty(name, one));
    else if (key === "value" || key === "checked" || key === "disabled") element[key] = value;
    else if (key === "data") Object.assign(element.dataset, value);
    else element.setAttribute(key, value === true ? "" : value);
  }
}

export function fill(element, ...children) {
  element.replaceChildren(...present(children));
  return element;
}

const present = (children) =>
  children
    .flat(Infinity)
    .filter((child) => child !== null && child !== undefined && child !== false);

// MathML of the lab as elements; no other response of the server is ever parsed as markup.
export function mathml(text) {
  const parsed = new DOMParser().parseFromString(text, "application/xml");
  if (parsed.querySelector("parsererror")) return h("code", text);
  return document.importNode(parsed.documentElement, true);
}

let lastId = 0;
export const uniqueId = (prefix) => `${prefix}-${(lastId += 1)}`;

// A labeled slider that shows its value: slider({ label, low, high, step, value, change, show })
export function slider({ label, low, high, step, value, change, show = (x) => String(x), name }) {
  const id = uniqueId("slider");
  const out = h("output", { for: id }, show(value));
  const input = h("input", {
    id,
    type: "range",
    min: low,
    max: high,
    step,
    value,
    name: name ?? false,
    oninput: () => {
      out.textContent = show(Number(input.value));
      change(Number(input.value));
    },
  });
  input.value = value; // after min, max and step, which would clamp it
  const set = (x) => {
    input.value = x;
    out.textContent = show(Number(input.value));
  };
  return Object.assign(h("div", { class: "slider" }, h("label", { for: id }, label), out, input), {
    input,
    set,
  });
}

export function dropdown({ label, options, value, change, name }) {
  const id = uniqueId("choice");
  const pairs = options.map((one) => (Array.isArray(one) ? one : [one, String(one)]));
  const select = h(
    "select",
    { id, name: name ?? false, onchange: () => change(select.value) },
    pairs.map(([key, text]) => h("option", { value: key }, text)),
  );
  select.value = value;
  return Object.assign(h("div", { class: "choice" }, h("label", { for: id }, label), select), {
    select,
  });
}

export const button = (text, click, attributes = {}) =>
  h("button", { type: "button", onclick: click, ...attributes }, text);

export function copyable(label, text) {
  const copy = button(
    "copy",
    async () => {
      await navigator.clipboard.writeText(text);
      copy.textContent = "copied";
      setTimeout(() => {
        copy.textContent = "copy";
      }, 1500);
    },
    { class: "small", "aria-label": `copy ${label}` },
  );
  return h("div", { class: "copyable" }, h("span", { class: "soft" }, label), copy, h("pre", text));
}

// Load an image, so that it can be drawn on a canvas.
export async function loadBitmap(source) {
  const image = new Image();
  image.src = source;
  await image.decode();
  return image;
}

// Call a function once no call has followed for some milliseconds.
export function debounce(milliseconds, act) {
  let timer = null;
  return (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => act(...args), milliseconds);
  };
}

export function notice(text, kind = "error") {
  const line = h(
    "div",
    { class: `notice ${kind}` },
    text,
    button("×", () => line.remove(), { "aria-label": "dismiss", class: "small" }),
  );
  document.getElementById("notices").append(line);
  if (kind !== "error") setTimeout(() => line.remove(), 4000);
}

export const prefersReducedMotion = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// Gallery of patterns: each is stored or forgotten with a click. Below, the load of the memory.

import { button, fill, h } from "../../dom.js";
import { tile } from "../../drawing.js";
import { INK, pixels } from "./drawings.js";

const CAPACITY = 0.138; // of the Hebb rule, for random patterns
const ICONS = 10; // the first patterns

// `set.stored` are names of patterns, `set.drawings` drawings; `change` is called with new ones.
export function patternGallery({ side, patterns, first, set, change }) {
  const [gallery, load] = [h("div", { class: "row", style: { gap: ".35rem" } }), h("div")];
  const names = Object.keys(patterns);
  const store = (text, changes) => button(text, () => change(changes), { class: "small" });

  function show() {
    const focused = document.activeElement?.dataset?.pattern;
    fill(
      gallery,
      names.map((name) => {
        const on = set.stored.includes(name);
        const stored = on ? set.stored.filter((other) => other !== name) : [...set.stored, name];
        return patternButton(side, name, patterns[name], on, () => change({ stored }));
      }),
      set.drawings.map((drawing, i) =>
        patternButton(side, `own ${i + 1}`, drawing, true, () =>
          change({ drawings: set.drawings.filter((_, j) => j !== i) }),
        ),
      ),
    );
    gallery.querySelector(`[data-pattern="${focused}"]`)?.focus();
    fill(load, loadOf(set.stored.length + set.drawings.length, side ** 2));
  }

  const element = h(
    "section",
    { class: "panel" },
    h("h3", { style: { "margin-top": 0 } }, "Stored patterns"),
    gallery,
    h(
      "div",
      { class: "row", style: { "margin-top": ".6rem" } },
      store("five icons", { stored: first, drawings: [] }),
      store("all icons", { stored: names.slice(0, ICONS) }),
      store("all", { stored: names }),
      store("nothing", { stored: [], drawings: [] }),
      load,
    ),
  );
  return { element, show };
}

const patternButton = (side, name, drawing, on, act) =>
  h(
    "button",
    {
      type: "button",
      onclick: act,
      "aria-pressed": String(on),
      title: on ? `forget ${name}` : `store ${name}`,
      style: { padding: ".25rem", "line-height": 1, width: "3.4rem" },
      data: { pattern: name },
    },
    tile({ width: side, height: side, values: pixels(drawing), label: "", size: 38, ...INK }),
    h(
      "span",
      { class: "small", style: { display: "block", "line-height": 1.3, overflow: "hidden" } },
      name,
    ),
  );

function loadOf(count, units) {
  const load = count / units;
  return h(
    "div",
    { class: "row" },
    h(
      "span",
      { class: "mono", data: { load: count } },
      `α = M / N = ${count} / ${units} = ${load.toFixed(2)}`,
    ),
    gauge(load),
    h(
      "span",
      { class: "soft small" },
      load > CAPACITY
        ? `above ${CAPACITY}: beyond the Hebbian capacity even for random patterns`
        : `Hebbian capacity: ${CAPACITY} for random patterns (the line), less for correlated ones`,
    ),
  );
}

const gauge = (load) =>
  h(
    "svg",
    {
      viewBox: "0 0 200 14",
      width: 200,
      height: 14,
      role: "img",
      "aria-label": `load ${load.toFixed(2)} of at most ${CAPACITY}`,
    },
    h("rect", { x: 0, y: 3, width: 200, height: 8, fill: "var(--shade)" }),
    h("rect", {
      x: 0,
      y: 3,
      width: Math.min(200, load * 500),
      height: 8,
      fill: load > CAPACITY ? "var(--warm)" : "var(--accent)",
    }),
    h("line", {
      x1: CAPACITY * 500,
      x2: CAPACITY * 500,
      y1: 0,
      y2: 14,
      stroke: "var(--ink)",
      "stroke-width": 2,
    }),
  );

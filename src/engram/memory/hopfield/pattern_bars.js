// Bars of the stored patterns with the largest values, be it overlap or attention.

import { h } from "../../dom.js";

const SHOWN = 8;

// Indices of the largest values, without their sign.
export const largest = (values) =>
  Array.from(values.keys())
    .sort((a, b) => Math.abs(values[b]) - Math.abs(values[a]))
    .slice(0, SHOWN);

export const patternBars = (order, names, values, show) =>
  order.map((i) => [
    h("span", names[i]),
    h("div", {
      class: "bar",
      style: {
        width: `${100 * Math.abs(values[i])}%`,
        background: values[i] < 0 ? "var(--warm)" : "var(--accent)",
      },
    }),
    h("span", { class: "mono" }, show(values[i])),
  ]);

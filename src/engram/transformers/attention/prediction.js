// Prediction before and after interventions, side by side; the largest changes are marked.

import { h } from "../../dom.js";
import { percent, tokenLabel } from "./colors.js";

export function prediction({ predictions, changed, divergence, kind, tokens, position }) {
  const largest = Math.max(...predictions.flatMap(({ before, after }) => [before, after]), 1e-9);
  const bar = (p, color) =>
    h(
      "td",
      { style: { width: changed ? "26%" : "60%", "min-width": "3rem" } },
      h("div", { class: "bar", style: { width: `${(100 * p) / largest}%`, background: color } }),
    );
  const number = (p) => h("td", { class: "number", style: { "font-size": ".82rem" } }, percent(p));
  const rows = predictions.map(({ token, before, after, marked }) =>
    h(
      "tr",
      {
        data: { prediction: token, marked },
        style: { background: marked ? "var(--shade)" : false },
      },
      h("td", { class: "mono", style: { "white-space": "nowrap" } }, tokenLabel(token)),
      bar(before, "var(--accent)"),
      number(before),
      changed && [bar(after, "var(--warm)"), number(after)],
      changed &&
        h(
          "td",
          {
            class: "number",
            style: {
              color: after > before ? "var(--good)" : "var(--warm)",
              "font-weight": 600,
              "font-size": ".82rem",
            },
          },
          marked &&
            `${after > before ? "▲ +" : "▼ −"}${(100 * Math.abs(after - before)).toFixed(1)}`,
        ),
    ),
  );
  const where =
    kind === "gpt"
      ? `after "${tokenLabel(tokens[position])}"`
      : `in place of "${tokenLabel(tokens[position])}"`;
  const note = changed
    ? `The prediction moved by ${divergence < 0.001 ? "less than 0.001" : divergence.toPrecision(2)} nats (Kullback–Leibler); ▲▼ mark the largest changes, in percentage points.`
    : "Switch a head off or edit a weight, and the new prediction appears beside this one.";
  return [
    h("h3", { style: { "margin-top": 0 } }, `Predicted ${where}`),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        { class: "predicted" },
        h(
          "tr",
          h("th", { style: { "white-space": "nowrap" } }, kind === "gpt" ? "next" : "token"),
          h("th", { colspan: 2 }, "before"),
          changed && [h("th", { colspan: 2 }, "after"), h("th", "")],
        ),
        rows,
      ),
    ),
    h("p", { class: "soft small", data: { divergence } }, note),
  ];
}

// Comparison of runs: curves on common axes, metrics, and the settings in which they differ.

import { COLORS, draw } from "../charts.js";
import { fill, h } from "../dom.js";
import { getQuery } from "../lab.js";
import { request, subscribe } from "../socket.js";
import { address } from "./home.js";
import { clock } from "./runs.js";

export async function show(holder) {
  const names = getQuery("runs").split(",").filter(Boolean);
  if (names.length < 2) {
    fill(
      holder,
      h("h1", "Comparison"),
      h("p", "Choose two runs or more on the page ", h("a", { href: "/runs" }, "Runs"), "."),
    );
    return;
  }
  const details = await Promise.all(names.map((name) => request("run", { name })));
  const lines = new Map(names.map((name) => [name, []]));
  const plots = h("div", { class: "halves" });
  const axis = h(
    "select",
    { "aria-label": "x axis", onchange: () => drawAll() },
    h("option", { value: "step" }, "by step"),
    h("option", { value: "seconds" }, "by time"),
  );
  const keys = [...new Set(details.flatMap((one) => Object.keys(one.settings)))];
  const differ = keys.filter(
    (key) => new Set(details.map((one) => JSON.stringify(one.settings[key]))).size > 1,
  );
  const rows = [
    ["recipe", (one) => one.recipe],
    ["time", (one) => clock(one.seconds)],
    ...[...new Set(details.flatMap((one) => Object.keys(one.metrics)))].map((key) => [
      key,
      (one) => one.metrics[key] ?? "–",
    ]),
    ...differ.map((key) => [key, (one) => JSON.stringify(one.settings[key] ?? null), true]),
  ];
  fill(
    holder,
    h("h1", "Comparison"),
    h("div", { class: "row" }, axis),
    plots,
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        h(
          "thead",
          h(
            "tr",
            h("th"),
            details.map((one, i) =>
              h("th", h("a", { href: address(one), style: { color: COLORS[i % 10] } }, one.name)),
            ),
          ),
        ),
        h(
          "tbody",
          rows.map(([name, of, set]) =>
            h(
              "tr",
              h("td", { class: "soft" }, name),
              details.map((one) => h("td", { class: set ? "set" : false }, String(of(one)))),
            ),
          ),
        ),
      ),
    ),
  );

  function drawAll() {
    const metrics = [...new Set([...lines.values()].flat().flatMap(Object.keys))].filter(
      (name) =>
        !["step", "seconds"].includes(name) && !name.includes(".") && !name.startsWith("test_"),
    );
    const shared = metrics.filter(
      (metric) =>
        [...lines.values()].filter((rows) => rows.some((row) => metric in row)).length > 1,
    );
    const figures = new Map([...plots.children].map((one) => [one.dataset.metric, one]));
    for (const metric of shared) {
      if (!figures.has(metric)) {
        const one = h(
          "figure",
          { data: { metric } },
          h("h3", metric.replaceAll("_", " ")),
          h("div"),
        );
        plots.append(one);
        figures.set(metric, one);
      }
      draw(
        figures.get(metric).lastChild,
        names.map((name, i) => {
          const found = lines.get(name).filter((row) => metric in row);
          return {
            x: found.map((row) => row[axis.value]),
            y: found.map((row) => row[metric]),
            name,
            mode: "lines",
            line: { color: COLORS[i % 10] },
          };
        }),
        { height: 280, xaxis: { title: { text: axis.value } } },
      );
    }
  }

  const stops = names.map((name) =>
    subscribe("watch", { name }, (part) => {
      if (part.reset) lines.set(name, []);
      if (part.lines) {
        lines.get(name).push(...part.lines);
        drawAll();
      }
    }),
  );
  return () => stops.forEach((stop) => stop());
}

// Runs side by side: curves on common axes, and the settings in which they differ.

import { COLOURS, draw } from "../charts.js";
import { fill, h } from "../dom.js";
import { kept } from "../lab.js";
import { ask, follow } from "../link.js";
import { address } from "./home.js";
import { clock } from "./runs.js";

export async function show(holder) {
  const names = kept("runs").split(",").filter(Boolean);
  if (names.length < 2) { fill(holder, h("h1", "Side by side"), h("p", "Choose two runs or more on the page ", h("a", { href: "/runs" }, "Runs"), ".")); return; }
  const details = await Promise.all(names.map((name) => ask("run", { name })));
  const lines = new Map(names.map((name) => [name, []]));
  const plots = h("div", { class: "halves" });
  const axis = h("select", { "aria-label": "against", onchange: () => drawAll() }, h("option", { value: "step" }, "step by step"), h("option", { value: "seconds" }, "for the time it took"));
  const keys = [...new Set(details.flatMap((one) => Object.keys(one.settings)))];
  const differ = keys.filter((key) => new Set(details.map((one) => JSON.stringify(one.settings[key]))).size > 1);
  const rows = [["recipe", (one) => one.recipe], ["time", (one) => clock(one.seconds)], ...[...new Set(details.flatMap((one) => Object.keys(one.said)))].map((key) => [key, (one) => one.said[key] ?? "–"]), ...differ.map((key) => [key, (one) => JSON.stringify(one.settings[key] ?? null), true])];
  fill(holder, h("h1", "Side by side"), h("div", { class: "row" }, axis), plots,
    h("div", { class: "scroll" }, h("table", h("thead", h("tr", h("th"), details.map((one, i) => h("th", h("a", { href: address(one), style: { color: COLOURS[i % 10] } }, one.name))))),
      h("tbody", rows.map(([name, of, set]) => h("tr", h("td", { class: "soft" }, name), details.map((one) => h("td", { class: set ? "set" : false }, String(of(one))))))))));

  function drawAll() {
    const kinds = [...new Set([...lines.values()].flat().flatMap(Object.keys))].filter((name) => !["step", "seconds"].includes(name) && !name.includes(".") && !name.startsWith("test_"));
    const shared = kinds.filter((kind) => [...lines.values()].filter((rows) => rows.some((row) => kind in row)).length > 1);
    const held = new Map([...plots.children].map((one) => [one.dataset.kind, one]));
    for (const kind of shared) {
      if (!held.has(kind)) { const one = h("figure", { data: { kind } }, h("h3", kind.replaceAll("_", " ")), h("div")); plots.append(one); held.set(kind, one); }
      draw(held.get(kind).lastChild, names.map((name, i) => {
        const found = lines.get(name).filter((row) => kind in row);
        return { x: found.map((row) => row[axis.value]), y: found.map((row) => row[kind]), name, mode: "lines", line: { color: COLOURS[i % 10] } };
      }), { height: 280, xaxis: { title: { text: axis.value } } });
    }
  }

  const stops = names.map((name) => follow("watch", { name }, (part) => {
    if (part.anew) lines.set(name, []);
    if (part.lines) { lines.get(name).push(...part.lines); drawAll(); }
  }));
  return () => stops.forEach((stop) => stop());
}

// Learning curves: what was measured, and the points between two measurements while a run is under way.

import { COLOURS, draw } from "./charts.js";
import { fill, h } from "./dom.js";

const SPLIT = /^(valid|test)_/;
const KEPT = 600;  // points
const REDRAW = 120;  // milliseconds between two drawings at least

// Collects lines and live points and draws one chart for each kind of measurement.
export class Curves {
  constructor(holder) {
    this.holder = holder;
    this.plots = new Map();
    this.clear();
  }

  clear() {
    this.lines = [];
    this.live = [];
    this.updates = 0;
    this.plots.clear();
    fill(this.holder);
  }

  add({ lines = [], live = [], anew = false }) {
    if (anew) this.clear();
    this.lines.push(...lines);
    this.live.push(...live);
    if (!lines.length && !live.length) return;
    if (this.timer) return;
    this.timer = setTimeout(() => { this.timer = null; this.drawAll(); }, REDRAW);
  }

  // What there is a curve of: a single point is a number, and stands above. Names with a dot are details for figures.
  kinds() {
    const counts = new Map();
    const count = (name) => { if (name !== "step" && name !== "seconds" && !name.includes(".")) counts.set(name, (counts.get(name) ?? 0) + 1); };
    for (const line of this.lines) Object.keys(line).forEach(count);
    for (const [, values] of this.live.slice(-3)) Object.keys(values).forEach(count);
    return [...new Set([...counts].filter(([, times]) => times > 1).map(([name]) => name.replace(SPLIT, "")))];
  }

  drawAll() {
    if (!this.holder.isConnected) return;
    this.live = this.live.slice(-KEPT);
    for (const kind of this.kinds()) {
      if (!this.plots.has(kind)) {
        const plot = h("div", { data: { curve: kind } });
        this.plots.set(kind, plot);
        this.holder.append(h("figure", h("h3", kind.replaceAll("_", " ")), plot));
      }
      draw(this.plots.get(kind), this.traces(kind), { height: 240, xaxis: { title: { text: "step" } }, yaxis: { type: this.logarithmic(kind) ? "log" : "linear" }, uirevision: kind });
    }
    this.updates += 1;
    this.holder.dataset.updates = this.updates;
  }

  logarithmic(kind) {
    const values = this.lines.map((line) => line[kind] ?? line[`valid_${kind}`]).filter((x) => x !== undefined);
    return values.length > 3 && Math.min(...values) > 0 && Math.max(...values) > 30 * Math.min(...values);
  }

  traces(kind) {
    const series = (name) => this.lines.filter((line) => name in line);
    const made = [];
    const add = (name, label, colour, more = {}) => {
      const found = series(name);
      if (found.length) made.push({ x: found.map((line) => line.step), y: found.map((line) => line[name]), name: label, mode: found.length < 3 ? "lines+markers" : "lines", line: { color: colour }, ...more });
    };
    const points = this.live.filter(([, values]) => kind in values);
    if (points.length) made.push({ x: points.map(([step]) => step), y: points.map(([, values]) => values[kind]), name: "now", mode: "lines", line: { color: COLOURS[5], width: 1 } });
    add(kind, "learning", COLOURS[0]);
    add(`valid_${kind}`, "validation", COLOURS[1]);
    add(`test_${kind}`, "test", COLOURS[2], { mode: "markers", marker: { color: COLOURS[2], size: 10, symbol: "diamond" } });
    return made;
  }
}

// Learning curves: what was measured, and the points between two measurements while a run is under way. They are drawn
// several times a second beside a machine that is busy learning, so they are canvases: plotly would take a tenth of it.

import { COLOURS } from "./charts.js";
import { fill, h } from "./dom.js";
import { dot, legend, line, sheet } from "./traces.js";

const SPLIT = /^(valid|test)_/;
const KEPT = 600;  // points between measurements
const SERIES = [["", "learning", COLOURS[0]], ["valid_", "validation", COLOURS[1]], ["test_", "test", COLOURS[2]]];
const NOW = COLOURS[5];

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
    this.stop();
    this.plots.clear();
    fill(this.holder);
  }

  stop() {
    for (const plot of this.plots.values()) plot.stop();
  }

  add({ lines = [], live = [], anew = false }) {
    if (anew) this.clear();
    this.lines.push(...lines);
    this.live = [...this.live, ...live].slice(-KEPT);
    if (!lines.length && !live.length) return;
    for (const kind of this.kinds()) this.plot(kind).again();
    this.holder.dataset.updates = this.updates += 1;
  }

  // What there is a curve of: a single point is a number, and stands above. Names with a dot are details for figures.
  kinds() {
    const counts = new Map();
    const count = (name) => { if (name !== "step" && name !== "seconds" && !name.includes(".")) counts.set(name, (counts.get(name) ?? 0) + 1); };
    for (const one of this.lines) Object.keys(one).forEach(count);
    for (const [, values] of this.live.slice(-3)) Object.keys(values).forEach(count);
    return [...new Set([...counts].filter(([, times]) => times > 1).map(([name]) => name.replace(SPLIT, "")))];
  }

  plot(kind) {
    if (!this.plots.has(kind)) {
      const said = h("output", { class: "small soft mono" });
      const made = sheet({ label: `${kind} against steps`, height: 210, xAxis: "step", paint: (pen, X, Y) => this.paint(kind, pen, X, Y), attributes: { data: { curve: kind } } });
      const again = made.again;
      made.again = () => { this.range(kind, made); again(); };
      made.canvas.addEventListener("pointermove", (event) => { said.textContent = this.at(kind, made.place(event)[0]); });
      made.canvas.addEventListener("pointerleave", () => { said.textContent = ""; });
      this.plots.set(kind, made);
      const names = [...SERIES.map(([, name, colour]) => [name, colour]), ["now", NOW]];
      this.holder.append(h("figure", h("h3", kind.replaceAll("_", " ")), legend(names), made.canvas, said));
    }
    return this.plots.get(kind);
  }

  // The measurements of a kind: [name, colour, steps, values] of each series that has any.
  series(kind) {
    const scale = this.logarithmic(kind) ? Math.log10 : (value) => value;
    const found = SERIES.map(([split, name, colour]) => {
      const having = this.lines.filter((one) => `${split}${kind}` in one);
      return [name, colour, having.map((one) => one.step), having.map((one) => scale(one[`${split}${kind}`]))];
    });
    const points = this.live.filter(([, values]) => kind in values);
    return [["now", NOW, points.map(([step]) => step), points.map(([, values]) => scale(values[kind]))], ...found].filter(([, , steps]) => steps.length);
  }

  range(kind, made) {
    const all = made.series = this.series(kind);
    const [steps, values] = [all.flatMap(([, , xs]) => xs), all.flatMap(([, , , ys]) => ys).filter(Number.isFinite)];
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const space = 0.06 * (high - low) || Math.abs(high) * 0.1 || 1;
    made.x = [Math.min(...steps, 0), Math.max(...steps, 1)];
    made.y = [low - space, high + space];
    made.yAxis = this.logarithmic(kind) ? "log₁₀" : "";
    made.canvas.dataset.points = steps.length;
  }

  paint(kind, pen, X, Y) {
    for (const [name, colour, steps, values] of this.plots.get(kind).series) {
      if (name === "test" || steps.length === 1) steps.forEach((step, i) => dot(pen, X(step), Y(values[i]), colour, name === "test" ? 5 : 3));
      else line(pen, X, Y, steps, values, { colour, width: name === "now" ? 1 : 2 });
    }
  }

  logarithmic(kind) {
    const values = this.lines.map((one) => one[kind] ?? one[`valid_${kind}`]).filter((value) => value !== undefined);
    return values.length > 3 && Math.min(...values) > 0 && Math.max(...values) > 30 * Math.min(...values);
  }

  // What was measured nearest to a step, in words.
  at(kind, step) {
    const near = SERIES.map(([split, name]) => {
      const having = this.lines.filter((one) => `${split}${kind}` in one);
      if (!having.length) return null;
      const one = having.reduce((best, other) => (Math.abs(other.step - step) < Math.abs(best.step - step) ? other : best));
      return `${name} ${Number(one[`${split}${kind}`].toPrecision(4))} at ${one.step}`;
    });
    return near.filter(Boolean).join(" · ");
  }
}

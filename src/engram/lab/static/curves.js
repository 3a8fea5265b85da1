// Learning curves: evaluations, and the training metrics between them while a run is active. They are redrawn several
// times a second beside the training process, so they are canvases: plotly would take a tenth of the CPU.

import { COLORS } from "./charts.js";
import { fill, h } from "./dom.js";
import { dot, legend, line, canvasPlot } from "./canvas_plot.js";

const SPLIT = /^(valid|test)_/;
const MAX_LIVE = 600; // points between evaluations
const SERIES = [
  ["", "training", COLORS[0]],
  ["valid_", "validation", COLORS[1]],
  ["test_", "test", COLORS[2]],
];
const NOW = COLORS[5];

// Collects evaluations and live points and draws one chart for each metric.
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

  add({ lines = [], live = [], reset = false }) {
    if (reset) this.clear();
    this.lines.push(...lines);
    this.live = [...this.live, ...live].slice(-MAX_LIVE);
    if (!lines.length && !live.length) return;
    for (const metric of this.metrics()) this.plot(metric).redraw();
    this.holder.dataset.updates = this.updates += 1;
  }

  // Metrics with more than one value; a single value is shown as a number above. Names with a dot are details for figures.
  metrics() {
    const counts = new Map();
    const count = (name) => {
      if (name !== "step" && name !== "seconds" && !name.includes("."))
        counts.set(name, (counts.get(name) ?? 0) + 1);
    };
    for (const one of this.lines) Object.keys(one).forEach(count);
    for (const [, values] of this.live.slice(-3)) Object.keys(values).forEach(count);
    return [
      ...new Set(
        [...counts].filter(([, times]) => times > 1).map(([name]) => name.replace(SPLIT, "")),
      ),
    ];
  }

  plot(metric) {
    if (!this.plots.has(metric)) {
      const readout = h("output", { class: "small soft mono" });
      const plot = canvasPlot({
        label: `${metric} over steps`,
        height: 210,
        xAxis: "step",
        paint: (pen, X, Y) => this.paint(metric, pen, X, Y),
        attributes: { data: { curve: metric } },
      });
      const redraw = plot.redraw;
      plot.redraw = () => {
        this.range(metric, plot);
        redraw();
      };
      plot.canvas.addEventListener("pointermove", (event) => {
        readout.textContent = this.at(metric, plot.place(event)[0]);
      });
      plot.canvas.addEventListener("pointerleave", () => {
        readout.textContent = "";
      });
      this.plots.set(metric, plot);
      const names = [...SERIES.map(([, name, color]) => [name, color]), ["latest", NOW]];
      this.holder.append(
        h("figure", h("h3", metric.replaceAll("_", " ")), legend(names), plot.canvas, readout),
      );
    }
    return this.plots.get(metric);
  }

  // The series of a metric: [name, color, steps, values] of each split that has any.
  series(metric) {
    const scale = this.logarithmic(metric) ? Math.log10 : (value) => value;
    const found = SERIES.map(([split, name, color]) => {
      const having = this.lines.filter((one) => `${split}${metric}` in one);
      return [
        name,
        color,
        having.map((one) => one.step),
        having.map((one) => scale(one[`${split}${metric}`])),
      ];
    });
    const points = this.live.filter(([, values]) => metric in values);
    return [
      [
        "latest",
        NOW,
        points.map(([step]) => step),
        points.map(([, values]) => scale(values[metric])),
      ],
      ...found,
    ].filter(([, , steps]) => steps.length);
  }

  range(metric, plot) {
    const all = (plot.series = this.series(metric));
    const [steps, values] = [
      all.flatMap(([, , xs]) => xs),
      all.flatMap(([, , , ys]) => ys).filter(Number.isFinite),
    ];
    const [low, high] = [Math.min(...values), Math.max(...values)];
    const space = 0.06 * (high - low) || Math.abs(high) * 0.1 || 1;
    plot.x = [Math.min(...steps, 0), Math.max(...steps, 1)];
    plot.y = [low - space, high + space];
    plot.yAxis = this.logarithmic(metric) ? "log₁₀" : "";
    plot.canvas.dataset.points = steps.length;
  }

  paint(metric, pen, X, Y) {
    for (const [name, color, steps, values] of this.plots.get(metric).series) {
      if (name === "test" || steps.length === 1)
        steps.forEach((step, i) => dot(pen, X(step), Y(values[i]), color, name === "test" ? 5 : 3));
      else line(pen, X, Y, steps, values, { color, width: name === "latest" ? 1 : 2 });
    }
  }

  logarithmic(metric) {
    const values = this.lines
      .map((one) => one[metric] ?? one[`valid_${metric}`])
      .filter((value) => value !== undefined);
    return (
      values.length > 3 && Math.min(...values) > 0 && Math.max(...values) > 30 * Math.min(...values)
    );
  }

  // The values nearest to a step, as text.
  at(metric, step) {
    const near = SERIES.map(([split, name]) => {
      const having = this.lines.filter((one) => `${split}${metric}` in one);
      if (!having.length) return null;
      const one = having.reduce((best, other) =>
        Math.abs(other.step - step) < Math.abs(best.step - step) ? other : best,
      );
      return `${name} ${Number(one[`${split}${metric}`].toPrecision(4))} at ${one.step}`;
    });
    return near.filter(Boolean).join(" · ");
  }
}

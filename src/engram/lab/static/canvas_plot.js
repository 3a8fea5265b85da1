// Plots on a canvas, for what is drawn many times a second: redrawn on request, and when the size or the theme changes.

import { h } from "./dom.js";

const MARGIN = { left: 46, right: 10, top: 20, bottom: 20 };
export const cssVariable = (name) =>
  getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A canvas with axes over the ranges `x` and `y` of the returned plot; paint(pen, X, Y) draws the data, X and Y map
// values to pixels.
export function canvasPlot({
  label,
  height,
  xAxis,
  yAxis,
  paint,
  square = false,
  attributes = {},
}) {
  const canvas = h("canvas", {
    role: "img",
    "aria-label": label,
    style: {
      width: "100%",
      height: `${height}px`,
      display: "block",
      "max-width": square ? `${height}px` : "100%",
    },
    ...attributes,
  });
  const plot = { canvas, x: [0, 1], y: [0, 1], xAxis, yAxis, paint, redraw };
  let frame = null;

  function redraw() {
    frame ??= requestAnimationFrame(() => {
      frame = null;
      drawNow();
    });
  }

  function drawNow() {
    const [width, height, ratio] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!width) return;
    if (canvas.width !== Math.round(width * ratio)) canvas.width = Math.round(width * ratio);
    if (canvas.height !== Math.round(height * ratio)) canvas.height = Math.round(height * ratio);
    const pen = canvas.getContext("2d");
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, height);
    const X = (value) =>
      MARGIN.left +
      ((value - plot.x[0]) / (plot.x[1] - plot.x[0])) * (width - MARGIN.left - MARGIN.right);
    const Y = (value) =>
      height -
      MARGIN.bottom -
      ((value - plot.y[0]) / (plot.y[1] - plot.y[0])) * (height - MARGIN.top - MARGIN.bottom);
    axes(pen, plot, X, Y);
    pen.save();
    pen.beginPath();
    pen.rect(
      MARGIN.left,
      MARGIN.top - 1,
      width - MARGIN.left - MARGIN.right,
      height - MARGIN.top - MARGIN.bottom + 2,
    );
    pen.clip();
    plot.paint(pen, X, Y);
    pen.restore();
  }

  // Position of a pointer event in data coordinates.
  plot.place = (event) => {
    const box = canvas.getBoundingClientRect();
    const across =
      (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    const up =
      (box.bottom - MARGIN.bottom - event.clientY) / (box.height - MARGIN.top - MARGIN.bottom);
    return [plot.x[0] + across * (plot.x[1] - plot.x[0]), plot.y[0] + up * (plot.y[1] - plot.y[0])];
  };

  const size = new ResizeObserver(redraw);
  size.observe(canvas);
  const theme = new MutationObserver(redraw);
  theme.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", redraw);
  plot.stop = () => {
    size.disconnect();
    theme.disconnect();
    system.removeEventListener("change", redraw);
    cancelAnimationFrame(frame);
  };
  return plot;
}

function axes(pen, { x, y, xAxis, yAxis }, X, Y) {
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = cssVariable("--soft");
  pen.strokeStyle = cssVariable("--line");
  pen.lineWidth = 1;
  const [left, right, bottom, top] = [X(x[0]), X(x[1]), Y(y[0]), Y(y[1])];
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of ticks(y, Math.min(8, (bottom - top) / 24))) {
    segment(pen, left, Y(tick), right, Y(tick));
    pen.fillText(formatTick(tick), left - 5, Y(tick));
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const tick of xAxis === false ? [] : ticks(x, (right - left) / 70)) {
    segment(pen, X(tick), bottom, X(tick), bottom + 4);
    pen.fillText(formatTick(tick), X(tick), bottom + 6);
  }
  pen.textAlign = "left";
  pen.fillText(yAxis ?? "", left, top - 17);
  pen.textAlign = "right";
  pen.fillText(xAxis || "", right, top - 17);
}

const formatTick = (tick) => String(Number(tick.toPrecision(4))).replace("-", "−");

// Round tick positions within [low, high], about `count` of them.
function ticks([low, high], count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from(
    { length: Math.floor(high / step + 1e-9) - first + 1 },
    (_, i) => (first + i) * step,
  );
}

export function segment(pen, x1, y1, x2, y2) {
  polyline(pen, [
    [x1, y1],
    [x2, y2],
  ]);
}

// A line through points in pixels.
export function polyline(pen, places) {
  pen.beginPath();
  places.forEach((place) => pen.lineTo(...place));
  pen.stroke();
}

// A line through points; null and NaN are gaps.
export function line(
  pen,
  X,
  Y,
  xs,
  ys,
  { color, width = 1.5, dash = [], from = 0, to = xs.length } = {},
) {
  pen.strokeStyle = color;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.lineJoin = "round";
  pen.beginPath();
  let open = false;
  for (let i = from; i < to; i += 1) {
    if (ys[i] === null || Number.isNaN(ys[i])) {
      open = false;
      continue;
    }
    if (open) pen.lineTo(X(xs[i]), Y(ys[i]));
    else pen.moveTo(X(xs[i]), Y(ys[i]));
    open = true;
  }
  pen.stroke();
  pen.setLineDash([]);
}

export function dot(pen, x, y, color, radius = 5) {
  pen.fillStyle = color;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
}

// Legend of colors: legend([["m", color], …])
export const legend = (entries) =>
  h(
    "p",
    { class: "small soft row" },
    entries.map(([text, color]) =>
      h(
        "span",
        h("span", { "aria-hidden": "true", style: { color: color, "font-weight": 700 } }, "━ "),
        text,
      ),
    ),
  );

// Run an asynchronous function one call at a time; calls during a run are merged into one more run afterward.
// While a slider moves without pause, a `channel` would cancel every request; this still completes some.
export function coalesce(act) {
  let [busy, again] = [false, false];
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    try {
      while (again) {
        again = false;
        await act();
      }
    } finally {
      busy = false;
    }
  };
}

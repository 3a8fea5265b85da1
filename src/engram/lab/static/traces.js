// Canvases for what is drawn many times a second: painted when asked, when their size or the lights change.

import { h } from "./dom.js";

const MARGIN = { left: 46, right: 10, top: 20, bottom: 20 };
export const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

// A canvas with axes, over the ranges `x` and `y` of what is returned; paint(pen, X, Y) draws into it, X and Y place values.
export function sheet({ label, height, xAxis, yAxis, paint, square = false, attributes = {} }) {
  const canvas = h("canvas", { role: "img", "aria-label": label, style: { width: "100%", height: `${height}px`, display: "block", "max-width": square ? `${height}px` : "100%" }, ...attributes });
  const made = { canvas, x: [0, 1], y: [0, 1], xAxis, yAxis, paint, again };
  let asked = null;

  function again() {
    asked ??= requestAnimationFrame(() => { asked = null; now(); });
  }

  function now() {
    const [wide, high, dense] = [canvas.clientWidth, canvas.clientHeight, devicePixelRatio || 1];
    if (!wide) return;
    if (canvas.width !== Math.round(wide * dense)) canvas.width = Math.round(wide * dense);
    if (canvas.height !== Math.round(high * dense)) canvas.height = Math.round(high * dense);
    const pen = canvas.getContext("2d");
    pen.setTransform(dense, 0, 0, dense, 0, 0);
    pen.clearRect(0, 0, wide, high);
    const X = (value) => MARGIN.left + (value - made.x[0]) / (made.x[1] - made.x[0]) * (wide - MARGIN.left - MARGIN.right);
    const Y = (value) => high - MARGIN.bottom - (value - made.y[0]) / (made.y[1] - made.y[0]) * (high - MARGIN.top - MARGIN.bottom);
    axes(pen, made, X, Y);
    pen.save();
    pen.beginPath();
    pen.rect(MARGIN.left, MARGIN.top - 1, wide - MARGIN.left - MARGIN.right, high - MARGIN.top - MARGIN.bottom + 2);
    pen.clip();
    made.paint(pen, X, Y);
    pen.restore();
  }

  // Where a pointer is, in the values of the axes.
  made.place = (event) => {
    const box = canvas.getBoundingClientRect();
    const across = (event.clientX - box.left - MARGIN.left) / (box.width - MARGIN.left - MARGIN.right);
    const up = (box.bottom - MARGIN.bottom - event.clientY) / (box.height - MARGIN.top - MARGIN.bottom);
    return [made.x[0] + across * (made.x[1] - made.x[0]), made.y[0] + up * (made.y[1] - made.y[0])];
  };

  const size = new ResizeObserver(again);
  size.observe(canvas);
  const lights = new MutationObserver(again);
  lights.observe(document.documentElement, { attributes: true, attributeFilter: ["data-theme"] });
  const system = matchMedia("(prefers-color-scheme: dark)");
  system.addEventListener("change", again);
  made.stop = () => { size.disconnect(); lights.disconnect(); system.removeEventListener("change", again); cancelAnimationFrame(asked); };
  return made;
}

function axes(pen, { x, y, xAxis, yAxis }, X, Y) {
  pen.font = "11px system-ui, sans-serif";
  pen.fillStyle = css("--soft");
  pen.strokeStyle = css("--line");
  pen.lineWidth = 1;
  const [left, right, bottom, top] = [X(x[0]), X(x[1]), Y(y[0]), Y(y[1])];
  pen.textAlign = "right";
  pen.textBaseline = "middle";
  for (const tick of ticks(y, Math.min(8, (bottom - top) / 24))) {
    segment(pen, left, Y(tick), right, Y(tick));
    pen.fillText(shown(tick), left - 5, Y(tick));
  }
  pen.textAlign = "center";
  pen.textBaseline = "top";
  for (const tick of xAxis === false ? [] : ticks(x, (right - left) / 70)) {
    segment(pen, X(tick), bottom, X(tick), bottom + 4);
    pen.fillText(shown(tick), X(tick), bottom + 6);
  }
  pen.textAlign = "left";
  pen.fillText(yAxis ?? "", left, top - 17);
  pen.textAlign = "right";
  pen.fillText(xAxis || "", right, top - 17);
}

const shown = (tick) => String(Number(tick.toPrecision(4))).replace("-", "−");

// Round numbers within [low, high], about as many as asked for.
function ticks([low, high], count) {
  const rough = (high - low) / Math.max(1, count);
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 5, 10].map((one) => one * power).find((one) => one >= rough);
  const first = Math.ceil(low / step - 1e-9);
  return Array.from({ length: Math.floor(high / step + 1e-9) - first + 1 }, (_, i) => (first + i) * step);
}

export function segment(pen, x1, y1, x2, y2) {
  pen.beginPath();
  pen.moveTo(x1, y1);
  pen.lineTo(x2, y2);
  pen.stroke();
}

// A line through places; null and NaN are gaps.
export function line(pen, X, Y, xs, ys, { colour, width = 1.5, dash = [], from = 0, to = xs.length } = {}) {
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.setLineDash(dash);
  pen.lineJoin = "round";
  pen.beginPath();
  let open = false;
  for (let i = from; i < to; i += 1) {
    if (ys[i] === null || Number.isNaN(ys[i])) { open = false; continue; }
    if (open) pen.lineTo(X(xs[i]), Y(ys[i]));
    else pen.moveTo(X(xs[i]), Y(ys[i]));
    open = true;
  }
  pen.stroke();
  pen.setLineDash([]);
}

export function dot(pen, x, y, colour, radius = 5) {
  pen.fillStyle = colour;
  pen.beginPath();
  pen.arc(x, y, radius, 0, 2 * Math.PI);
  pen.fill();
}

// What colour is whose: legend([["m", colour], …])
export const legend = (entries) => h("p", { class: "small soft row" }, entries.map(([text, colour]) => h("span", h("span", { "aria-hidden": "true", style: { color: colour, "font-weight": 700 } }, "━ "), text)));

// Does a thing at a time: called while it is at it, it does it once more afterwards, with whatever is newest then.
// A hand that moves on and on would keep a `channel` from ever being answered; this answers as often as it can.
export function paced(act) {
  let [busy, again] = [false, false];
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    try {
      while (again) { again = false; await act(); }
    } finally {
      busy = false;
    }
  };
}

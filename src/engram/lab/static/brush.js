// The brush of a drawing: dabs and lines of full or empty pixels, and the tools that set it.

import { button, uniqueId, h, slider } from "./dom.js";
import { rgb } from "./pixels.js";

// live: the Float32Array that is drawn on; mode: "gray", "binary" or "color"; brush: initial width in pixels
export function createBrush({ live, width, height, channels, mode, range, brush }) {
  const pen = {
    width: brush ?? (Math.max(width, height) <= 16 ? 1 : 2),
    erases: false,
    color: [1, 1, 1],
  };

  function dab(x, y, erases) {
    const reach = pen.width / 2;
    const [top, bottom] = [Math.floor(y - reach), Math.floor(y + reach)];
    const [left, right] = [Math.floor(x - reach), Math.floor(x + reach)];
    for (let row = Math.max(0, top); row <= Math.min(height - 1, bottom); row += 1) {
      for (let column = Math.max(0, left); column <= Math.min(width - 1, right); column += 1) {
        const amount = opacity(x, y, column, row);
        if (amount > 0) paintPixel(row * width + column, amount, erases);
      }
    }
  }

  // Opacity of a dab at (x, y) in a pixel: a wide brush for gray images has a soft edge.
  function opacity(x, y, column, row) {
    const reach = pen.width / 2;
    const within = column === Math.floor(x) && row === Math.floor(y);
    const distance = Math.hypot(column + 0.5 - x, row + 0.5 - y);
    if (within || distance <= reach) return 1;
    return mode === "gray" && pen.width > 1 ? Math.max(0, 1 - (distance - reach) / 0.7) : 0;
  }

  function paintPixel(index, amount, erases) {
    for (let channel = 0; channel < channels; channel += 1) {
      const at = channel * width * height + index;
      const full = erases
        ? range[0]
        : range[0] + (range[1] - range[0]) * (mode === "color" ? pen.color[channel] : 1);
      if (mode === "color" || amount === 1) live[at] = full;
      else
        live[at] = erases
          ? Math.min(live[at], range[1] + (range[0] - range[1]) * amount)
          : Math.max(live[at], range[0] + (range[1] - range[0]) * amount);
    }
  }

  function drawLine(from, to, erases) {
    const [dx, dy] = [to[0] - from[0], to[1] - from[1]];
    const steps = Math.max(1, Math.ceil(2 * Math.hypot(dx, dy)));
    for (let i = 1; i <= steps; i += 1)
      dab(from[0] + (dx * i) / steps, from[1] + (dy * i) / steps, erases);
  }

  return { pen, dab, drawLine };
}

// Buttons to draw, erase and clear, the color, and the width of the brush, for an image with sides up to `largest`.
export function brushTools(pen, mode, largest, clear) {
  const draws = button("draw", () => setEraser(false), { class: "small", "aria-pressed": "true" });
  const erases = button("erase", () => setEraser(true), {
    class: "small",
    "aria-pressed": "false",
  });
  const setEraser = (on) => {
    pen.erases = on;
    draws.setAttribute("aria-pressed", String(!on));
    erases.setAttribute("aria-pressed", String(on));
  };
  const color =
    mode === "color" &&
    h("input", {
      type: "color",
      id: uniqueId("color"),
      value: "#ffffff",
      "aria-label": "color",
      oninput: () => {
        pen.color = rgb(color.value).map((x) => x / 255);
        setEraser(false);
      },
    });
  const brushSlider = slider({
    label: "brush",
    low: 1,
    high: Math.max(2, Math.min(8, Math.ceil(largest / 4))),
    step: 1,
    value: pen.width,
    change: (x) => {
      pen.width = x;
    },
  });
  brushSlider.style.width = "7rem";
  return h(
    "div",
    { class: "row" },
    draws,
    erases,
    color,
    button("clear", clear, { class: "small" }),
    brushSlider,
  );
}

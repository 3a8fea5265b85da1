// Canvases whose pixels are values of an array: painted again when the theme changes, as CSS variables change.

import { h } from "./dom.js";

const painted = new Map();
const repaint = () => {
  for (const [canvas, show] of painted) {
    if (canvas.isConnected) show();
    else painted.delete(canvas);
  }
};
new MutationObserver(repaint).observe(document.documentElement, {
  attributeFilter: ["data-theme"],
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

// Call show() now, and when the theme changes, until forget(canvas).
export function keepPainted(canvas, show) {
  painted.set(canvas, show);
  show();
}

export const forget = (canvas) => painted.delete(canvas);

export function buildCanvas({ width, height, size, label }) {
  const scale = Math.max(1, Math.round((2 * size) / Math.max(width, height))); // twice the displayed resolution, for dense screens
  return h("canvas", {
    width: width * scale,
    height: height * scale,
    "aria-label": label,
    style: {
      width: `min(100%, ${Math.round((size * width) / Math.max(width, height))}px)`,
      "aspect-ratio": `${width} / ${height}`,
    },
  });
}

// Paint values, channels × height × width: three channels are colors, one is a place between the tones.
export function paint(canvas, { width, height, values, channels, range: [low, high], tones }) {
  const stops = tones.map(rgb);
  const small = new ImageData(width, height);
  for (let i = 0; i < width * height; i += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      const value = values[channels === 3 ? channel * width * height + i : i];
      const full = Math.min(1, Math.max(0, (value - low) / (high - low)));
      const at = full * (stops.length - 1);
      const [a, b] = [stops[Math.floor(at)], stops[Math.ceil(at)]];
      small.data[4 * i + channel] =
        channels === 3
          ? 255 * full
          : a[channel] + (b[channel] - a[channel]) * (at - Math.floor(at));
    }
    small.data[4 * i + 3] = 255;
  }
  const context = canvas.getContext("2d");
  const scratch = new OffscreenCanvas(width, height);
  scratch.getContext("2d").putImageData(small, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(scratch, 0, 0, canvas.width, canvas.height);
}

// Frame one pixel of a canvas that is `width` pixels wide.
export function frame(canvas, x, y, width, color) {
  const context = canvas.getContext("2d");
  const side = canvas.width / width;
  context.strokeStyle = color;
  context.lineWidth = Math.max(2, side / 10);
  context.strokeRect(
    x * side + context.lineWidth / 2,
    y * side + context.lineWidth / 2,
    side - context.lineWidth,
    side - context.lineWidth,
  );
}

export function drawGrid(canvas, width, height) {
  const context = canvas.getContext("2d");
  context.strokeStyle = "rgba(128, 128, 128, 0.35)";
  context.lineWidth = 1;
  context.beginPath();
  for (let x = 1; x < width; x += 1) {
    context.moveTo((x * canvas.width) / width, 0);
    context.lineTo((x * canvas.width) / width, canvas.height);
  }
  for (let y = 1; y < height; y += 1) {
    context.moveTo(0, (y * canvas.height) / height);
    context.lineTo(canvas.width, (y * canvas.height) / height);
  }
  context.stroke();
}

// A CSS color, or a CSS variable, as three numbers up to 255.
export function rgb(color) {
  const text = color.startsWith("--")
    ? getComputedStyle(document.documentElement).getPropertyValue(color).trim()
    : color;
  const digits =
    text.slice(1).length === 3
      ? [...text.slice(1)].map((one) => one + one).join("")
      : text.slice(1);
  return [0, 2, 4].map((i) => parseInt(digits.slice(i, i + 2), 16));
}

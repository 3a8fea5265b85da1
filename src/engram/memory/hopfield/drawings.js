// Drawings: tiles of binary patterns, and their text of hexadecimal digits, a bit for each pixel.

import { tile } from "../../drawing.js";

export const INK = { range: [-1, 1], tones: ["--card", "--ink"] };
export const SIZE = 260; // of a large drawing on the screen

export const digits = (values) =>
  Array.from({ length: values.length / 4 }, (_, i) =>
    [8, 4, 2, 1].reduce((sum, bit, j) => sum + (values[4 * i + j] > 0 ? bit : 0), 0).toString(16),
  ).join("");
export const pixels = (text) =>
  [...text].flatMap((digit) => [8, 4, 2, 1].map((bit) => (parseInt(digit, 16) & bit ? 1 : -1)));

// A tile for the state of a network.
export function stateTile(side, label) {
  const values = new Array(side ** 2).fill(-1);
  const image = tile({ width: side, height: side, values, label, size: SIZE, ...INK });
  image.classList.add("pixels");
  return image;
}

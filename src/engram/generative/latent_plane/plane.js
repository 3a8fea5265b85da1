// The plane of latents o + x a + y b: its settings, and its geometry.

import { getQuery } from "../../lab.js";
import { decodeArray } from "../../socket.js";

const DEFAULTS = { plane: "auto", x_coordinate: 0, y_coordinate: 1, seed: 0, extent: 2.5 };

export const readSettings = () =>
  Object.fromEntries(
    Object.entries(DEFAULTS).map(([name, value]) => {
      const text = getQuery(name, String(value));
      return [name, name === "plane" ? text : Number(text)];
    }),
  );

// Settings as they are in the address: without the defaults.
export const changedSettings = (settings) =>
  Object.fromEntries(
    Object.entries(settings).map(([name, value]) => [name, value === DEFAULTS[name] ? "" : value]),
  );

// Decode the arrays of a response.
export function decodePlane(part) {
  const plane = { ...part };
  for (const name of ["o", "a", "b", "mean", "std"]) plane[name] = decodeArray(part[name]).values;
  for (const name of ["projected", "real"]) plane[name] = part[name] && decodeArray(part[name]);
  return plane;
}

export const latentAt = ({ o, a, b }, x, y) => Array.from(o, (one, i) => one + x * a[i] + y * b[i]);

// The point of the plane nearest to a latent.
export function project({ o, a, b }, latent) {
  const along = (axis) => {
    const [dot, square] = axis.reduce(
      ([d, s], one, i) => [d + (latent[i] - o[i]) * one, s + one * one],
      [0, 0],
    );
    return square > 1e-12 ? dot / square : 0;
  };
  return [along(a), along(b)];
}

// Coordinates of the latent in descending order of their variance.
export const byVariance = ({ std }) => Array.from(std, (_, i) => i).sort((i, j) => std[j] - std[i]);

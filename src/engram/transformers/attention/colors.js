// Colors and labels of attention weights: Viridis, of the square root, so that small weights are visible.

const STOPS = [
  [68, 1, 84],
  [71, 44, 122],
  [59, 81, 138],
  [45, 114, 142],
  [34, 144, 140],
  [45, 174, 127],
  [96, 200, 96],
  [172, 220, 49],
  [253, 231, 37],
];

export function viridis(weight) {
  const x = Math.sqrt(Math.min(1, Math.max(0, weight))) * (STOPS.length - 1);
  const i = Math.min(STOPS.length - 2, Math.floor(x));
  return `rgb(${STOPS[i].map((low, c) => Math.round(low + (STOPS[i + 1][c] - low) * (x - i))).join()})`;
}

export const tokenLabel = (token) => (token === "" ? "∅" : token.replaceAll(" ", "·"));
export const percent = (p) =>
  p >= 0.0995
    ? `${(100 * p).toFixed(0)} %`
    : p >= 0.00095
      ? `${(100 * p).toFixed(1)} %`
      : p > 0
        ? "< 0.1 %"
        : "0 %";

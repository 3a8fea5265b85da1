// Sampling parameters: sliders, and segments of tokens that were sampled with the same ones.

import { slider } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";

const PARAMETERS = [
  // name, label, low, high, step, default, format
  ["temperature", "temperature", 0, 2, 0.05, 0.8, (x) => x.toFixed(2)],
  ["top_k", "top-k", 0, 50, 1, 0, (x) => (x ? String(x) : "all")],
  ["top_p", "top-p", 0.05, 1, 0.05, 1, (x) => (x === 1 ? "all" : x.toFixed(2))],
  ["min_p", "min-p", 0, 0.5, 0.01, 0, (x) => (x ? x.toFixed(2) : "off")],
  [
    "repetition_penalty",
    "repetition penalty",
    1,
    2,
    0.05,
    1,
    (x) => (x === 1 ? "off" : `÷ ${x.toFixed(2)}`),
  ],
];

// changed(): called when a slider moved. values: of each name; list(): in their order
export function samplingParameters(changed) {
  const values = Object.fromEntries(
    PARAMETERS.map(([name, , , , , default_]) => [name, Number(getQuery(name, String(default_)))]),
  );
  const sliders = PARAMETERS.map(([name, label, low, high, step, , show]) =>
    slider({
      label,
      name,
      low,
      high,
      step,
      value: values[name],
      show,
      change: (x) => {
        values[name] = x;
        setQuery({ [name]: x });
        changed();
      },
    }),
  );
  const list = () => PARAMETERS.map(([name]) => values[name]);
  const flags = () =>
    PARAMETERS.filter(([name, , , , , default_]) => values[name] !== default_)
      .map(([name]) => ` --${name.replace("_", "-")} ${values[name]}`)
      .join("");
  return { values, sliders, list, flags };
}

// The temperature, and the other parameters that are not the default, as text.
export const describeParameters = (used) =>
  PARAMETERS.map(([, label, , , , default_, show], k) =>
    k === 0 || used[k] !== default_ ? `${label} ${show(used[k])}` : null,
  )
    .filter(Boolean)
    .join(", ");

// Lengths of the segments of tokens with the same parameters, each with these.
export function segments(tokens) {
  const found = [];
  for (const { settings } of tokens) {
    if (found.length && found.at(-1).slice(1).join() === settings.join()) found.at(-1)[0] += 1;
    else found.push([1, ...settings]);
  }
  return found;
}

// In the address: length,temperature,top_k,top_p,min_p,repetition_penalty;…
export const pack = (tokens) =>
  segments(tokens)
    .map((one) => one.join(","))
    .join(";");
export const unpack = (text) =>
  text
    .split(";")
    .filter(Boolean)
    .map((one) => one.split(",").map(Number));

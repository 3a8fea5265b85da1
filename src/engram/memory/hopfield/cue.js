// Cue: a drawing board, and tools that take a pattern, flip some of its pixels or cover a half.

import { button, dropdown, h, slider } from "../../dom.js";
import { pixelCanvas } from "../../drawing.js";
import { request } from "../../socket.js";
import { INK, SIZE, digits, pixels } from "./drawings.js";

const HALVES = [
  ["upper", "the upper half"],
  ["lower", "the lower half"],
  ["left", "the left half"],
  ["right", "the right half"],
];
const FLIPPED = 0.25; // of the pixels, at first

// `changed` is called after every change of the drawing, `corrupted` when it was corrupted, `change` with new settings.
export function cue({ side, patterns, set, changed, corrupted, change }) {
  const board = pixelCanvas({
    width: side,
    height: side,
    label: "drawing",
    mode: "binary",
    size: SIZE,
    ...INK,
    change: changed,
  });
  const seed = h("input", {
    type: "number",
    name: "seed",
    min: 0,
    max: 2147483647,
    value: set.seed,
    style: { width: "7rem" },
    oninput: () => change({ seed: Math.max(0, Math.floor(Number(seed.value) || 0)) }),
  });

  function take(drawing) {
    board.set(pixels(drawing));
    return changed();
  }

  async function corrupt(how, fraction = FLIPPED) {
    const { drawing } = await request("hopfield.corrupt", {
      drawing: digits(board.values),
      how,
      fraction,
      seed: set.seed,
    });
    if (how === "flip") seed.value = set.seed += 1; // the same pixels would be flipped back
    await take(drawing);
    corrupted();
  }

  const tools = [
    dropdown({
      label: "take a pattern",
      name: "pattern",
      options: [["", "…"], ...Object.keys(patterns)],
      value: "",
      change: (name) => {
        if (name) take(patterns[name]);
      },
    }),
    corruptionTools(corrupt),
    h(
      "div",
      { class: "row", style: { "margin-top": ".5rem" } },
      button("store this drawing", () =>
        change({ drawings: [...set.drawings, digits(board.values)] }),
      ),
      h("label", { class: "small" }, "seed ", seed),
    ),
  ];
  const element = h(
    "section",
    h("h3", "Cue"),
    board.element,
    tools,
    h(
      "p",
      { class: "soft small" },
      "Draw, and both networks recall at once. The seed sets which pixels flip and the order of the updates.",
    ),
  );
  return { element, board, take, corrupt };
}

// A slider and buttons; corrupt(how, fraction) is called with "flip" or a half.
function corruptionTools(corrupt) {
  let [fraction, half] = [FLIPPED, "lower"];
  return [
    slider({
      label: "fraction of the pixels",
      name: "fraction",
      low: 0,
      high: 0.5,
      step: 0.01,
      value: fraction,
      show: (x) => `${Math.round(100 * x)} %`,
      change: (x) => {
        fraction = x;
      },
    }),
    h(
      "div",
      { class: "row" },
      button("flip them", () => corrupt("flip", fraction)),
      button("cover", () => corrupt(half, fraction)),
      h(
        "select",
        {
          "aria-label": "half to cover",
          onchange: ({ target }) => {
            half = target.value;
          },
        },
        HALVES.map(([key, text]) => h("option", { value: key, selected: key === half }, text)),
      ),
    ),
  ];
}

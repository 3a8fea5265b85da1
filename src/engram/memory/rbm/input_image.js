// Input: a test image or a drawing, and tools that add noise or cover a half.

import { button, dropdown, fill, h, slider } from "../../dom.js";
import { pixelCanvas } from "../../drawing.js";
import { request, decodeArray } from "../../socket.js";

export const HALVES = [
  ["upper", "the upper half"],
  ["lower", "the lower half"],
  ["left", "the left half"],
  ["right", "the right half"],
];
const PENS = [
  ["gray", "gray"],
  ["binary", "black and white"],
];

// `changed(ended)` is called after every change of the image, `reseeded` after another seed was set, `remember` after
// another setting.
export class InputImage {
  constructor({ about, model, set, common, failed, changed, remember, reseeded }) {
    Object.assign(this, { about, model, set, common, failed, changed, remember, reseeded });
    [this.place, this.named] = [h("div"), h("span", { class: "soft" })];
    this.board = null;
    this.number = numberInput({
      name: "item",
      max: about.test - 1,
      value: set.item,
      onchange: () => this.take(Number(this.number.value)),
    });
    this.seed = numberInput({
      name: "seed",
      max: 2147483647,
      value: set.seed,
      onchange: () => {
        set.seed = Math.max(0, Math.floor(Number(this.seed.value) || 0));
        reseeded();
      },
    });
    this.element = this.build();
  }

  setBoard(values) {
    const [, height, width] = this.about.shape;
    this.stop();
    this.board = pixelCanvas({
      width,
      height,
      values,
      label: "drawing",
      mode: this.set.pen,
      size: 280,
      change: (_, ended) => {
        this.named.textContent = "your drawing";
        this.changed(ended);
      },
    });
    fill(this.place, this.board.element);
  }

  async take(asked) {
    const item = Math.min(this.about.test - 1, Math.max(0, Math.floor(asked) || 0));
    try {
      const { label, image } = await request("rbm.image", { ...this.model, item });
      this.set.item = this.number.value = item;
      this.named.textContent = label ? `"${label}"` : "";
      this.setBoard(decodeArray(image).values);
      this.changed(true);
    } catch (error) {
      this.failed(error);
    }
  }

  async corrupt(how, fraction) {
    const args = { ...this.common(), image: [...this.board.values], how, fraction };
    try {
      const { image } = await request("rbm.corrupt", args);
      if (how === "noise") this.seed.value = this.set.seed += 1;
      this.board.set(decodeArray(image).values);
      this.changed(true);
    } catch (error) {
      this.failed(error);
    }
  }

  stop() {
    this.board?.stop();
  }

  build() {
    const step = (text, by, name) =>
      button(text, () => this.take(this.set.item + by), { class: "small", "aria-label": name });
    return h(
      "section",
      h("h3", "Input"),
      this.place,
      h(
        "div",
        { class: "row" },
        h("label", "test image ", this.number),
        step("◀", -1, "previous test image"),
        step("▶", 1, "next test image"),
        this.named,
      ),
      corruptionTools((how, fraction) => this.corrupt(how, fraction)),
      h(
        "div",
        { class: "row", style: { "margin-top": ".5rem" } },
        this.about.shape[0] === 1 && this.penChoice(),
        h("label", { class: "small" }, "seed ", this.seed),
      ),
      h(
        "p",
        { class: "soft small" },
        "The units are binary: a gray pixel is on with the probability of its brightness.",
      ),
    );
  }

  penChoice() {
    return dropdown({
      label: "pen",
      name: "pen",
      value: this.set.pen,
      options: PENS,
      change: (pen) => {
        this.set.pen = pen;
        this.setBoard([...this.board.values]);
        this.remember();
      },
    });
  }
}

const numberInput = (more) =>
  h("input", { type: "number", min: 0, style: { width: "6rem" }, ...more });

// A slider and buttons; corrupt(how, fraction) is called with "noise" or a half.
function corruptionTools(corrupt) {
  let [fraction, half] = [0.2, "lower"];
  return [
    slider({
      label: "fraction of the pixels",
      name: "fraction",
      low: 0,
      high: 1,
      step: 0.05,
      value: fraction,
      show: (x) => `${Math.round(100 * x)} %`,
      change: (x) => {
        fraction = x;
      },
    }),
    h(
      "div",
      { class: "row" },
      button("add noise", () => corrupt("noise", fraction)),
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

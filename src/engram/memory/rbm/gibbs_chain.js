// Gibbs chain: its frames as they arrive, and back again. A chain continues from the frame that is shown.

import { button, dropdown, h, debounce, slider, prefersReducedMotion } from "../../dom.js";
import { tile } from "../../drawing.js";
import { channel, decodeArray } from "../../socket.js";
import { drawEnergies } from "./energy_plot.js";
import { HALVES } from "./input_image.js";

const [FRAME_MS, CHAIN_STEPS, MAX_FRAMES] = [45, 400, 1200]; // ms per frame, steps of a chain, frames that are kept
const VIEWS = [
  ["probability", "probabilities"],
  ["visible", "samples"],
];

export class GibbsChain {
  // `given` returns the input, `showHidden` shows hidden units; `remember` is called after a setting has changed, and
  // `infer` when the hidden units of the input have.
  constructor({ about, set, common, failed, given, showHidden, remember, infer }) {
    Object.assign(this, { set, common, failed, given, showHidden, remember, infer });
    [this.frames, this.coming, this.at] = [[], [], -1];
    this.latest = channel();
    this.wanted = 0; // the last step of the chain
    this.timer = null;
    this.quantiles = null; // of the free energy of test images: 5%, 50%, 95%
    const [channels, height, width] = about.shape;
    this.image = tile({
      width,
      height,
      values: new Float32Array(channels * width * height),
      label: "visible units",
      size: 280,
    });
    this.image.classList.add("pixels");
    this.status = h("p", { role: "status", style: { "margin-top": ".5rem" } });
    this.curve = h("div");
    this.halt = button(
      "stop",
      () => {
        this.pause();
        this.show(true);
      },
      { disabled: true },
    );
    this.scrub = slider({
      label: "frame",
      name: "frame",
      low: 0,
      high: 0,
      step: 1,
      value: 0,
      change: (x) => {
        this.pause();
        this.at = x;
        this.show(true);
      },
    });
    this.element = this.build(about.temperature);
  }

  get frame() {
    return this.frames[this.at];
  }

  get step() {
    return this.frame?.step ?? 0;
  }

  // Continue for some steps; frames after the one that is shown are dropped.
  async run(count) {
    this.pause();
    this.frames = this.frames.slice(0, this.at + 1);
    this.wanted = this.step + count;
    this.timer = setInterval(() => this.next(), FRAME_MS);
    this.halt.disabled = false;
    try {
      await this.latest(
        "rbm.gibbs",
        {
          ...this.common(),
          clamp: this.set.clamp,
          steps: count,
          start_step: this.step,
          image: [...(this.frame?.visible ?? this.given())],
        },
        (part) => this.coming.push(decodeFrame(part)),
      );
    } catch (error) {
      this.pause();
      this.failed(error);
    }
  }

  next() {
    if (!this.coming.length) return;
    this.frames.push(...this.coming.splice(0, prefersReducedMotion() ? Infinity : 1));
    this.frames.splice(0, this.frames.length - MAX_FRAMES);
    this.at = this.frames.length - 1;
    const ended = this.step >= this.wanted;
    if (ended) this.pause();
    this.show(ended || this.at % 5 === 0);
  }

  pause() {
    this.latest.stop();
    clearInterval(this.timer);
    [this.coming, this.timer] = [[], null];
    this.halt.disabled = true;
  }

  reset() {
    this.pause();
    [this.frames, this.at] = [[], -1];
    this.show(true);
  }

  restart() {
    this.reset();
    this.run(CHAIN_STEPS);
  }

  // Compare with the free energy of test images.
  compare(quantiles) {
    this.quantiles = quantiles ?? this.quantiles;
    this.plot();
  }

  show(curves) {
    const { frame } = this;
    this.halt.disabled = this.timer === null;
    this.image.set(frame ? frame[this.set.view] : this.given());
    Object.assign(this.scrub.input, {
      max: Math.max(0, this.frames.length - 1),
      disabled: this.frames.length < 2,
    });
    this.scrub.set(Math.max(0, this.at));
    if (frame) this.showHidden(frame.hidden);
    this.status.textContent = frame
      ? `step ${frame.step}: energy ${frame.energy.at(-1).toFixed(1)}, free energy ${frame.free_energy.at(-1).toFixed(1)}`
      : "Step 0: the input.";
    if (curves) this.plot();
  }

  plot() {
    drawEnergies(this.curve, this.frames, this.frame, this.quantiles);
  }

  build(trainedTemperature) {
    return h(
      "section",
      h("h3", "Gibbs chain"),
      this.image,
      h(
        "div",
        { class: "row", style: { "margin-top": ".5rem" } },
        button("one step", () => this.run(1), { class: "main" }),
        button("20 steps", () => this.run(20)),
        button(`${CHAIN_STEPS} steps`, () => this.run(CHAIN_STEPS)),
        this.halt,
        button("reset", () => this.reset(), { class: "small" }),
      ),
      this.status,
      this.scrub,
      this.temperatureSlider(trainedTemperature),
      h("div", { class: "row" }, this.choices()),
      this.curve,
      h(
        "p",
        { class: "soft small" },
        "A Gibbs step samples the hidden units given the visible ones, then the visible ones given the hidden. A chain from noise falls quickly to the free energy of images (the band: 90% of test images) and then mixes there: widely at a high temperature, hardly at a low one.",
      ),
    );
  }

  temperatureSlider(trainedTemperature) {
    const rerun = debounce(150, () => {
      if (this.timer !== null) this.run(Math.max(1, this.wanted - this.step));
    });
    return slider({
      label: "temperature",
      name: "temperature",
      low: 0.2,
      high: 3,
      step: 0.05,
      value: this.set.temperature,
      show: (x) => `T = ${(x * trainedTemperature).toFixed(2)}`,
      change: (x) => {
        this.set.temperature = x;
        this.remember();
        this.infer();
        rerun();
      },
    });
  }

  choices() {
    return [
      dropdown({
        label: "clamp, and sample the rest",
        name: "clamp",
        value: this.set.clamp,
        options: [["nothing", "nothing"], ...HALVES],
        change: (clamp) => {
          this.set.clamp = clamp;
          this.remember();
          this.restart();
        },
      }),
      dropdown({
        label: "show",
        name: "view",
        value: this.set.view,
        options: VIEWS,
        change: (view) => {
          this.set.view = view;
          this.remember();
          this.show(false);
        },
      }),
    ];
  }
}

const decodeFrame = (part) => ({
  ...part,
  probability: decodeArray(part.probability).values,
  visible: decodeArray(part.visible).values,
  hidden: decodeArray(part.hidden).values,
});

// The classic network: recall flip by flip, with its energy and its overlap with the stored patterns.

import { COLORS, draw } from "../../charts.js";
import { button, dropdown, fill, h, prefersReducedMotion } from "../../dom.js";
import { channel, decodeArray } from "../../socket.js";
import { pixels, stateTile } from "./drawings.js";
import { largest, patternBars } from "./pattern_bars.js";

const FLIP_MS = 90;
const RULES = [
  ["hebb", "Hebb"],
  ["pseudo-inverse", "pseudo-inverse"],
  ["storkey", "Storkey"],
];
const UPDATES = [
  ["asynchronous", "one at a time"],
  ["synchronous", "all at once"],
];

// `mark(units)` frames units in the drawing.
export class ClassicNetwork {
  constructor(side, { mark, set, change, formulas }) {
    this.mark = mark;
    this.latest = channel();
    this.found = null; // what the lab has recalled
    this.at = Infinity; // the step that is shown
    this.playing = null;
    this.image = stateTile(side, "state of the network");
    this.status = h("p", { role: "status", style: { "margin-top": ".5rem" } });
    this.where = h("p", { class: "soft small" });
    this.curve = h("div");
    this.bars = h("div", { class: "bars" });
    this.holds = h("p", { class: "small" });
    this.element = this.build(set, change, formulas);
  }

  async recall(memory) {
    const answer = await this.latest("hopfield", memory);
    const overlap = decodeArray(answer.overlap).values;
    const states = [pixels(memory.drawing)];
    for (const units of answer.changes) {
      const next = [...states.at(-1)];
      units.forEach((unit) => {
        next[unit] *= -1;
      });
      states.push(next);
    }
    this.found = {
      ...answer,
      energy: decodeArray(answer.energy).values,
      overlap,
      states,
      order: largest(overlap.slice(overlap.length - answer.names.length)),
    };
    if (!this.playing) this.at = Infinity;
    this.holds.textContent = `${answer.stable.length} of the ${answer.names.length} stored patterns are fixed points.`;
    this.show();
  }

  get steps() {
    return this.found?.changes.length ?? 0;
  }

  get now() {
    return Math.min(this.at, this.steps);
  }

  // Units that flip in the step that is shown.
  get flipped() {
    return this.now > 0 ? this.found.changes[this.now - 1] : [];
  }

  show() {
    if (!this.found) return;
    const { now, steps, found, flipped } = this;
    const units =
      flipped.length === 1 ? `unit ${flipped[0]} flips` : `${flipped.length} units flip`;
    const what = now ? `: ${units}, sweep ${found.sweeps[now - 1]}` : ": the cue";
    this.image.set(found.states[now]);
    this.where.textContent = `step ${now} of ${steps}${what}`;
    this.status.textContent =
      now === steps ? found.text : `energy ${found.energy[now].toFixed(0)}.`;
    drawEnergy(this.curve, found.energy, now);
    const count = found.names.length;
    const overlap = found.overlap.slice(now * count, (now + 1) * count);
    fill(
      this.bars,
      patternBars(found.order, found.names, overlap, (x) => x.toFixed(2)),
    );
  }

  // Show a step and frame the units that flip.
  showStep(step) {
    this.at = step;
    this.mark(this.flipped);
    this.show();
  }

  pause() {
    clearInterval(this.playing);
    this.playing = null;
  }

  goTo(step) {
    this.pause();
    if (this.found) this.showStep(Math.max(0, Math.min(step, this.steps)));
  }

  // Go to the end of the present sweep; at the end, back to the cue.
  goToNextSweep() {
    const sweeps = this.found?.sweeps ?? [];
    this.goTo(sweeps.filter((one) => one <= sweeps[this.now]).length);
  }

  play() {
    this.goTo(prefersReducedMotion() ? Infinity : 0);
    if (prefersReducedMotion()) return;
    this.playing = setInterval(() => {
      this.showStep(this.at + 1);
      if (this.found && this.at >= this.steps) this.pause();
    }, FLIP_MS);
  }

  stop() {
    this.pause();
    this.latest.stop();
  }

  build(set, change, formulas) {
    return h(
      "section",
      h("h3", "Hopfield network"),
      this.image,
      this.where,
      h(
        "div",
        { class: "row" },
        button("⏮", () => this.goTo(0), { "aria-label": "back to the cue" }),
        button("◀", () => this.goTo(this.now - 1), { "aria-label": "one step back" }),
        button("step ▶", () => this.goTo(this.now + 1), { class: "main" }),
        button("sweep", () => this.goToNextSweep()),
        button("play", () => this.play()),
        button("⏭", () => this.goTo(Infinity), { "aria-label": "to the end" }),
      ),
      this.status,
      h(
        "div",
        { class: "row" },
        dropdown({
          label: "learning rule",
          name: "rule",
          value: set.rule,
          options: RULES,
          change: (rule) => change({ rule }),
        }),
        dropdown({
          label: "update",
          name: "update",
          value: set.update,
          options: UPDATES,
          change: (update) => change({ update }),
        }),
      ),
      this.curve,
      h(
        "p",
        { class: "soft small" },
        "Each unit takes the sign of its local field. One at a time, the energy never rises and the network converges to a minimum. Frames in the drawing mark the units that flip.",
      ),
      h("h3", "Overlap with the stored patterns"),
      this.bars,
      this.holds,
      h("div", { class: "scroll" }, formulas.energy, formulas.update),
    );
  }
}

// Energy at every step, with a mark at one of them.
function drawEnergy(holder, energy, step) {
  draw(
    holder,
    [
      {
        x: [...energy.keys()],
        y: [...energy],
        mode: energy.length < 80 ? "lines+markers" : "lines",
        line: { color: COLORS[0] },
        marker: { size: 4 },
        hovertemplate: "step %{x}: %{y:.1f}<extra></extra>",
      },
      {
        x: [step],
        y: [energy[step]],
        mode: "markers",
        marker: { size: 12, color: COLORS[1] },
        hoverinfo: "skip",
      },
    ],
    {
      height: 200,
      showlegend: false,
      margin: { l: 56, r: 10, t: 8, b: 38 },
      xaxis: { title: { text: "step" } },
      yaxis: { title: { text: "energy" } },
    },
  );
}

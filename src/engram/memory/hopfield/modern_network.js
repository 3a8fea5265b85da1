// The modern network: recall by attention over the stored patterns.

import { fill, h, slider } from "../../dom.js";
import { channel, decodeArray } from "../../socket.js";
import { stateTile } from "./drawings.js";
import { largest, patternBars } from "./pattern_bars.js";

export function modernNetwork(side, { set, change, formulas }) {
  const latest = channel();
  const image = stateTile(side, "state of the modern network");
  const status = h("p", { role: "status", style: { "margin-top": ".5rem" } });
  const bars = h("div", { class: "bars" });

  async function recall(memory) {
    const answer = await latest("hopfield.modern", memory);
    const states = decodeArray(answer.states).values;
    const weights = decodeArray(answer.weights).values;
    image.set(states.slice(-(side ** 2)));
    const last = weights.slice(weights.length - answer.names.length);
    fill(
      bars,
      patternBars(largest(last), answer.names, last, (x) => `${(100 * x).toFixed(1)} %`),
    );
    status.textContent = answer.text;
  }

  const sliders = [
    slider({
      label: "inverse temperature β",
      name: "beta",
      low: -10,
      high: 1,
      step: 0.25,
      value: set.beta,
      show: (x) => (2 ** x).toPrecision(2),
      change: (beta) => change({ beta }),
    }),
    slider({
      label: "steps",
      name: "steps",
      low: 1,
      high: 6,
      step: 1,
      value: set.steps,
      change: (steps) => change({ steps }),
    }),
  ];
  const element = h(
    "section",
    h("h3", "Modern Hopfield network"),
    image,
    h("p", { class: "soft small" }, "gray levels are mixtures of patterns"),
    sliders,
    status,
    h("h3", "Attention over the stored patterns"),
    bars,
    h("div", { class: "scroll", style: { "margin-top": ".6rem" } }, formulas.modern),
    h(
      "p",
      { class: "soft small" },
      "One update is attention: the drawing is the query, the stored patterns are keys and values, and the bars are the attention weights, as in each head of a Transformer:",
    ),
    h("div", { class: "scroll" }, formulas.attention),
    h(
      "p",
      { class: "soft small" },
      "With a small β all patterns are mixed; with a large one a single pattern is recalled, however many are stored.",
    ),
  );
  return { recall, element, stop: latest.stop };
}

// Sliders of the coordinates of the selected latent.

import { fill, h, slider } from "../../dom.js";
import { byVariance } from "./plane.js";

const MAX_SLIDERS = 8;

// change(i, value) is called when a slider moves
export function coordinateSliders(change) {
  const holder = h("div");
  let sliders = [];

  function build(about) {
    const many = about.has_encoder && about.latent_dim > MAX_SLIDERS;
    const order = many ? byVariance(about) : Array.from({ length: about.latent_dim }, (_, i) => i);
    sliders = order.slice(0, MAX_SLIDERS).map((i) => {
      const range = 3 * Math.max(about.std[i], 1e-2);
      const [low, high] = [about.mean[i] - range, about.mean[i] + range];
      const one = slider({
        label: `coordinate ${i + 1}`,
        name: `z${i}`,
        low,
        high,
        step: (high - low) / 200,
        value: about.mean[i],
        show: (x) => x.toFixed(2),
        change: (x) => change(i, Number(x.toFixed(4))),
      });
      return [i, one];
    });
    fill(
      holder,
      h(
        "details",
        { open: true },
        h(
          "summary",
          many ? `The ${MAX_SLIDERS} coordinates of largest variance` : "Coordinates of the latent",
        ),
        h(
          "div",
          { class: "fields" },
          sliders.map(([, one]) => h("div", one)),
        ),
      ),
    );
  }

  const set = (z) => sliders.forEach(([i, one]) => one.set(z[i]));
  return { holder, build, set };
}

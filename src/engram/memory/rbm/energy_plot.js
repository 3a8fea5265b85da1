// Energy and free energy along a Gibbs chain, with a mark at the frame that is shown.

import { COLORS, draw } from "../../charts.js";

// `quantiles` of the free energy of test images (5%, 50%, 95%) are shown as a band.
export function drawEnergies(holder, frames, shown, quantiles) {
  const energy = frames.flatMap((frame) => frame.energy);
  const free = frames.flatMap((frame) => frame.free_energy);
  const first = (frames.at(-1)?.step ?? 0) - energy.length + 1;
  const line = (y, name, color) => ({
    x: energy.map((_, i) => first + i),
    y,
    name,
    mode: energy.length < 30 ? "lines+markers" : "lines",
    line: { color, width: 1.5 },
    marker: { size: 4 },
  });
  draw(
    holder,
    [
      line(energy, "energy E(v, h)", COLORS[0]),
      line(free, "free energy F(v)", COLORS[1]),
      {
        x: [shown?.step ?? 0],
        y: [shown?.free_energy.at(-1) ?? null],
        mode: "markers",
        marker: { size: 10, color: COLORS[1] },
        showlegend: false,
        hoverinfo: "skip",
      },
    ],
    {
      height: 230,
      margin: { l: 56, r: 10, t: 30, b: 38 },
      xaxis: { title: { text: "Gibbs step" } },
      shapes: quantiles ? [band(quantiles)] : [],
    },
  );
}

const band = ([low, , high]) => ({
  type: "rect",
  xref: "paper",
  x0: 0,
  x1: 1,
  y0: low,
  y1: high,
  fillcolor: COLORS[1],
  opacity: 0.15,
  line: { width: 0 },
  layer: "below",
});

// Representation: tuning curves of an ensemble, and the value decoded from its noisy rates or its spikes.

import { COLORS, draw } from "../../charts.js";
import { fill, h } from "../../dom.js";
import { coalesce } from "../../canvas_plot.js";
import { request, decodeArray } from "../../socket.js";
import { errorScaling } from "./error_scaling.js";
import { format, sliders } from "./sliders.js";

const ENSEMBLE = {
  n: ["neurons", 2, 500, 1, 50],
  seed: ["seed", 0, 50, 1, 0],
  lowest: ["lowest maximal rate (Hz)", 20, 400, 5, 200],
  highest: ["highest maximal rate (Hz)", 20, 400, 5, 400],
  noise: ["noise of the rates", 0, 0.5, 0.01, 0.1],
  window: ["spike count window (ms)", 5, 100, 5, 50],
};
const HEIGHT = 320;
const columns = (width) => ({
  display: "grid",
  gap: "1.2rem",
  "grid-template-columns": `repeat(auto-fit, minmax(min(100%, ${width}), 1fr))`,
  "align-items": "end",
});

export function representation(holder) {
  const [tuning, decoded] = [h("div"), h("div")];
  const status = h("p", { role: "status", id: "decoding-error" });
  const { values, made } = sliders(holder, ENSEMBLE, (name) => {
    if (name === "lowest" || name === "highest") keepOrder(name);
    update();
    if (name === "n") scaling.draw();
    else if (name !== "noise" && name !== "window") scaling.update();
  });
  const ensemble = () => ({
    neurons: values.n,
    seed: values.seed,
    max_rates: [values.lowest, values.highest],
  });
  const scaling = errorScaling({ ensemble, height: HEIGHT });

  function keepOrder(moved) {
    const other = moved === "lowest" ? "highest" : "lowest";
    if (values.lowest <= values.highest) return;
    values[other] = values[moved];
    made[other].set(values[other]);
  }

  const update = coalesce(async () => {
    const found = {};
    const args = { ensemble: ensemble(), noise: values.noise, window_ms: values.window };
    try {
      await request("population", args, (part) => {
        Object.assign(found, part);
        if (part.tuning) drawTuning(tuning, found);
        else drawDecoded(decoded, found);
      });
      status.textContent = `Root mean square error of ${values.n} neurons: ${format(found.rates.rmse)} from noisy rates, ${format(found.spikes.rmse)} from spike counts in ${values.window} ms.`;
    } catch (error) {
      status.textContent = error.message;
    }
  });

  fill(
    holder,
    h("h2", "Representation"),
    h(
      "div",
      { class: "panel", style: { ...columns("10.5rem"), "margin-bottom": ".8rem" } },
      Object.values(made),
    ),
    status,
    h(
      "div",
      { style: columns("22rem") },
      figure(
        "Tuning curves: each neuron has a random encoder, intercept and maximal rate.",
        tuning,
      ),
      figure(
        "Linear decoders read the value from all neurons; below, the error. It grows with fewer neurons, more noise or a shorter window.",
        decoded,
      ),
      h("figure", scaling.elements),
    ),
  );
  update();
  scaling.measure();
  return () => scaling.stop();
}

const figure = (caption, plot) => h("figure", h("figcaption", caption), plot);

function drawTuning(holder, { x, tuning }) {
  const { shape, values } = decodeArray(tuning);
  const curves = Array.from({ length: shape[0] }, (_, i) => ({
    x,
    y: Array.from(values.subarray(i * shape[1], (i + 1) * shape[1])),
    mode: "lines",
    line: { width: 1, color: COLORS[i % COLORS.length] },
    name: `neuron ${i}`,
    showlegend: false,
  }));
  draw(holder, curves, {
    xaxis: { title: { text: "value" } },
    yaxis: { title: { text: "firing rate (Hz)" }, rangemode: "tozero" },
    height: HEIGHT,
  });
}

function drawDecoded(holder, { rates, spikes }) {
  const exact = { mode: "lines", name: "exact", line: { color: COLORS[6], dash: "dot" } };
  draw(
    holder,
    [
      { x: [-1, 1], y: [-1, 1], ...exact },
      ...valueAndError(rates, {
        name: "noisy rates",
        mode: "lines",
        line: { color: COLORS[0], width: 1.5 },
      }),
      ...valueAndError(spikes, {
        name: "spikes",
        mode: "markers",
        marker: { color: COLORS[1], size: 5 },
      }),
    ],
    {
      xaxis: { title: { text: "value" }, anchor: "y2" },
      yaxis: { title: { text: "decoded" }, range: [-1.3, 1.3], domain: [0.42, 1] },
      yaxis2: {
        title: { text: "error" },
        domain: [0, 0.32],
        gridcolor: "rgba(128,128,128,0.2)",
        zerolinecolor: COLORS[6],
      },
      height: HEIGHT,
    },
  );
}

function valueAndError(found, trace) {
  if (!found) return []; // has not arrived yet
  const { x, decoded } = found;
  return [
    { x, y: decoded, ...trace },
    {
      x,
      y: decoded.map((y, i) => y - x[i]),
      ...trace,
      name: `error of ${trace.name}`,
      yaxis: "y2",
      showlegend: false,
    },
  ];
}

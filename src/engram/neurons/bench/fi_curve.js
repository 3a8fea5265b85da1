// f–I curve: firing rate under constant currents, measured a few at a time.

import { COLORS, draw } from "../../charts.js";
import { h } from "../../dom.js";
import { channel } from "../../socket.js";
import { CELLS } from "./cells.js";

export function fiCurve() {
  const latest = channel();
  const [curve, status] = [h("div", { class: "fi-curve" }), h("figcaption", { id: "fi-caption" })];

  async function update(parameters) {
    const found = {
      cell: parameters.cell,
      current: [],
      rate: [],
      analytic: null,
      rheobase: {},
      error: 0,
    };
    status.textContent = "measuring …";
    try {
      await latest(
        "neuron.fi_curve",
        { ...parameters, max_current: CELLS[found.cell].maxCurrent, points: 33 },
        (part) => {
          take(found, part);
          paint(curve, found);
        },
      );
      status.textContent = caption(found);
    } catch (error) {
      status.textContent = error.message;
    }
  }

  return { elements: [status, curve], update, stop: latest.stop };
}

function take(found, part) {
  if (part.analytic) found.analytic = part.analytic;
  if (part.current) {
    found.current.push(...part.current);
    found.rate.push(...part.rate_hz);
    found.error = Math.max(found.error, part.error_hz ?? 0);
  }
  Object.assign(found.rheobase, part.rheobase);
}

function paint(curve, { cell, current, rate, analytic, rheobase }) {
  const marks = Object.values(rheobase).filter((x) => x !== null);
  draw(
    curve,
    [
      ...(analytic
        ? [
            {
              x: analytic.current,
              y: analytic.rate_hz,
              name: "analytic",
              mode: "lines",
              line: { color: COLORS[0] },
            },
          ]
        : []),
      {
        x: [...current],
        y: [...rate],
        name: "measured",
        mode: analytic ? "markers" : "lines+markers",
        marker: { color: COLORS[1], size: 6 },
        line: { color: COLORS[1], width: 1 },
      },
    ],
    {
      xaxis: {
        title: { text: cell === "lif" ? "constant input" : "constant current (µA/cm²)" },
        range: [0, CELLS[cell].maxCurrent],
      },
      yaxis: { title: { text: "firing rate (Hz)" }, rangemode: "tozero" },
      shapes: marks.map((x) => ({
        type: "line",
        x0: x,
        x1: x,
        yref: "paper",
        y0: 0,
        y1: 1,
        line: { dash: "dot", color: COLORS[6] },
      })),
    },
  );
}

function caption({ cell, rheobase, error }) {
  if (cell === "lif")
    return `Line: the analytic rate 1 / (τ_ref − τ_m ln(1 − 1/v_in)), 0 up to the rheobase of 1. The simulated rate differs by ${error < 0.001 ? "less than 0.001" : `at most ${error.toPrecision(2)}`} Hz.`;
  if (rheobase.repetitive === null)
    return "No constant current up to 100 µA/cm² elicits repetitive firing.";
  return `Rheobase (dotted): ${rheobase.single.toFixed(2)} µA/cm² for a single spike, ${rheobase.repetitive.toFixed(2)} for repetitive firing, which sets in at a high rate (class 2 excitability).`;
}

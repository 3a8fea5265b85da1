// How fast a neuron fires under constant currents, measured a few at a time.

import { COLOURS, draw } from "../../charts.js";
import { h } from "../../dom.js";
import { channel } from "../../link.js";
import { CELLS } from "./cells.js";

export function rateCurve() {
  const latest = channel();
  const [curve, said] = [h("div", { class: "rates" }), h("figcaption", { id: "rates-said" })];

  async function look(parameters) {
    const found = { cell: parameters.cell, current: [], rate: [], formula: null, rheobase: {}, apart: 0 };
    said.textContent = "measuring …";
    try {
      await latest("neuron.rates", { ...parameters, most: CELLS[found.cell].most, points: 33 }, (part) => { take(found, part); paint(curve, found); });
      said.textContent = caption(found);
    } catch (error) {
      said.textContent = error.message;
    }
  }

  return { elements: [said, curve], look, stop: latest.stop };
}

function take(found, part) {
  if (part.formula) found.formula = part.formula;
  if (part.current) {
    found.current.push(...part.current);
    found.rate.push(...part.rate_hz);
    found.apart = Math.max(found.apart, part.apart_hz ?? 0);
  }
  Object.assign(found.rheobase, part.rheobase);
}

function paint(curve, { cell, current, rate, formula, rheobase }) {
  const marks = Object.values(rheobase).filter((x) => x !== null);
  draw(curve, [
    ...(formula ? [{ x: formula.current, y: formula.rate_hz, name: "formula", mode: "lines", line: { color: COLOURS[0] } }] : []),
    { x: [...current], y: [...rate], name: "measured", mode: formula ? "markers" : "lines+markers", marker: { color: COLOURS[1], size: 6 }, line: { color: COLOURS[1], width: 1 } },
  ], {
    xaxis: { title: { text: cell === "lif" ? "constant input" : "constant current, µA/cm²" }, range: [0, CELLS[cell].most] }, yaxis: { title: { text: "rate, Hz" }, rangemode: "tozero" },
    shapes: marks.map((x) => ({ type: "line", x0: x, x1: x, yref: "paper", y0: 0, y1: 1, line: { dash: "dot", color: COLOURS[6] } })),
  });
}

function caption({ cell, rheobase, apart }) {
  if (cell === "lif") return `The line is 1 / (τ_ref − τ_m ln(1 − 1/v_in)), nothing up to 1. The neuron that runs is ${apart < 0.001 ? "less than 0.001" : `at most ${apart.toPrecision(2)}`} Hz away from it.`;
  if (rheobase.repetitive === null) return "No constant current up to 100 µA/cm² makes this neuron fire on and on.";
  return `Dotted: ${rheobase.once.toFixed(2)} µA/cm² makes one spike, ${rheobase.repetitive.toFixed(2)} makes it fire on and on, at once with a high rate.`;
}

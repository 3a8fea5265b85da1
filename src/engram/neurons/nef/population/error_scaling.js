// Decoding error against the number of neurons, measured one size after another.

import { COLORS, draw } from "../../charts.js";
import { debounce, h } from "../../dom.js";
import { channel } from "../../socket.js";

export function errorScaling({ ensemble, height }) {
  const latest = channel();
  const [chart, caption] = [h("div"), h("figcaption", { id: "error-scaling" })];
  let errors;

  async function measure() {
    errors = { neurons: [], clean: [], noisy: [] };
    caption.textContent = "measuring …";
    try {
      const { clean_exponent, noisy_exponent } = await latest(
        "population.errors",
        { ensemble: ensemble() },
        (part) => {
          for (const name of ["neurons", "clean", "noisy"]) errors[name].push(part[name]);
          paint();
        },
      );
      caption.textContent =
        `The decoding error falls as N to the power ${clean_exponent.toFixed(2)} without noise and ${noisy_exponent.toFixed(2)} with noise of 10 %; averaging independent noise gives −0.5.`.replaceAll(
          "-",
          "−",
        );
    } catch (error) {
      caption.textContent = error.message;
    }
  }

  const curve = (y, name, color) => ({
    x: [...errors.neurons],
    y: [...y],
    mode: "lines+markers",
    name,
    line: { color },
  });

  function paint() {
    const { neurons } = ensemble();
    const here = { x0: neurons, x1: neurons, yref: "paper", y0: 0, y1: 1 };
    draw(
      chart,
      [curve(errors.clean, "rates", COLORS[0]), curve(errors.noisy, "noisy rates", COLORS[1])],
      {
        xaxis: { title: { text: "neurons" }, type: "log", tickvals: [10, 20, 50, 100, 200, 500] },
        yaxis: {
          title: { text: "root mean square error" },
          type: "log",
          exponentformat: "power",
          dtick: 1,
        },
        shapes: [{ type: "line", ...here, line: { dash: "dot", color: COLORS[6] } }],
        height,
      },
    );
  }

  return {
    elements: [caption, chart],
    measure,
    update: debounce(500, measure),
    draw: paint,
    stop: latest.stop,
  };
}

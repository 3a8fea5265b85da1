// Probability of the true class, and of the target or the most probable other class, against eps.

import { COLORS, draw } from "../../charts.js";
import { h } from "../../dom.js";
import { channel } from "../../socket.js";

export function probabilityCurve({ about, state }) {
  const latest = channel();
  const chart = h("div", { role: "img", "aria-label": "probability against ε" });
  const [caption, wrong] = [h("figcaption", { class: "small" }), h("p", { class: "soft small" })];
  let [points, label, minimalNorm] = [[], 0, null];

  // Forget the curve and the minimal norm of another image or attack.
  function reset() {
    latest.stop();
    [points, minimalNorm] = [[], null];
    wrong.textContent = "";
    caption.textContent = `Probability of the true class against ε. ${state.method === "minimal" ? "The vertical line is the minimal norm; the curve is PGD, which may need more." : "The vertical line is the ε of the slider."}`;
    if (state.source === "user" && !state.image) draw(chart, [], {});
  }

  async function update(params) {
    try {
      ({ label } = await latest("attack.curve", params, (part) => {
        if (part.p) {
          points.push(part);
          paint();
        }
      }));
      paint();
    } catch (error) {
      wrong.textContent = error.message;
    }
  }

  // Show the label and the minimal norm that an attack has found.
  function compare(found) {
    label = found.label;
    if (state.method === "minimal") {
      minimalNorm = found[state.norm];
      markEps();
    }
    if (points.length) paint();
  }

  const epsLine = () => {
    const x = minimalNorm ?? state.eps[state.norm];
    const line = { color: "#8c8c8c", width: 1.5, dash: "dash" };
    return { shapes: [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: x, x1: x, line }] };
  };
  function markEps() {
    if (points.length && chart._fullLayout) Plotly.relayout(chart, epsLine());
  }

  function paint() {
    const target = state.method === "minimal" ? -1 : state.target;
    const mostProbableOther = (p) => Math.max(...p.filter((_, i) => i !== label));
    const curve = (probability, name, line) => ({
      x: points.map(({ eps }) => eps),
      y: points.map(({ p }) => probability(p)),
      name,
      mode: "lines+markers",
      line,
      hovertemplate: "ε %{x:.3f}: %{y:.1%}<extra></extra>",
    });
    const dotted = { color: COLORS[1], dash: "dot" };
    draw(
      chart,
      [
        curve((p) => p[label], `"${about.classes[label]}"`, { color: COLORS[0] }),
        target >= 0
          ? curve((p) => p[target], `"${about.classes[target]}"`, dotted)
          : curve(mostProbableOther, "most probable other class", dotted),
      ],
      {
        height: 260,
        xaxis: { title: { text: "ε" }, range: [0, about.max_eps[state.norm]] },
        yaxis: { range: [-0.03, 1.03], tickformat: ".0%" },
        ...epsLine(),
      },
    );
  }

  return {
    element: h("figure", caption, chart, wrong),
    reset,
    update,
    compare,
    markEps,
    stop: latest.stop,
  };
}

// Phase plane: the path of the state, with the nullclines under the present current.

import { h } from "../../dom.js";
import { cssVariable, dot, line, coalesce, canvasPlot } from "../../canvas_plot.js";
import { request } from "../../socket.js";
import { valueRange } from "./recording.js";

const LATELY_MS = 12; // of the path, drawn thick
const CAPTIONS = {
  lif: "The state moves along the dashed line, which the input shifts up and down: to the right while dv/dt is above 0 (dotted). Where they meet is the equilibrium; at v = 1 the neuron fires and is reset.",
  "hodgkin-huxley":
    "Each loop is a spike, counterclockwise. Dashed: V-nullcline under the present current; dotted: n-nullcline. Where they meet is an equilibrium.",
};

export function phasePlane({ protocol, recording, failed }) {
  const caption = h("figcaption");
  let nullclines = null; // of a Hodgkin–Huxley neuron
  const plane = canvasPlot({
    label: "phase plane",
    height: 380,
    square: true,
    xAxis: "V (mV)",
    yAxis: "n",
    paint: (ink, X, Y) => {
      if (!recording.response) return;
      const curve = (color, dash) => (xs, ys) =>
        line(ink, X, Y, xs, ys, { color: cssVariable(color), dash });
      const [dashed, dotted] = [curve("--warm", [6, 4]), curve("--good", [2, 3])];
      if (recording.isLif) {
        const { J, tau } = recording.response;
        const slope = (v) => (J[recording.index] - v) / tau;
        dashed([-2, 2], [-2, 2].map(slope));
        dotted([-2, 2], [0, 0]);
      } else if (nullclines) {
        dashed(nullclines.V, nullclines.V_nullcline);
        dotted(nullclines.V, nullclines.n_nullcline);
      }
      paintPath(ink, X, Y, recording);
    },
  });

  const updateNullclines = coalesce(async () => {
    const { response } = recording;
    if (response?.cell !== "hodgkin-huxley" || protocol.cell !== response.cell) return;
    const parameters = protocol.parameters();
    const now = Math.round(response.J[recording.index] * 10) / 10;
    const at = JSON.stringify(parameters);
    if (nullclines?.at === at && nullclines.now === now) return;
    try {
      const found = await request("neuron.nullclines", { ...parameters, current: now });
      nullclines = { at, now, ...found };
      plane.redraw();
    } catch (error) {
      failed(error);
    }
  });

  function fit() {
    const { series } = recording.response;
    const { isLif } = recording;
    [plane.xAxis, plane.yAxis] = isLif ? ["→ v", "dv/dt (1/ms)"] : ["→ V (mV)", "n"];
    plane.x = isLif ? [-0.2, 1.2] : [-90, 60];
    plane.y = isLif
      ? valueRange([series.dv_dt], { minMargin: 0.01 })
      : [Math.min(0.2, valueRange([series.n])[0]), 0.9];
  }

  return {
    element: h("figure", h("h2", "Phase plane"), caption, plane.canvas),
    updateNullclines,
    fit,
    redraw: plane.redraw,
    stop: plane.stop,
    showCell: () => {
      caption.textContent = CAPTIONS[protocol.cell];
    },
  };
}

function paintPath(ink, X, Y, recording) {
  const { t, duration, series } = recording.response;
  const [xs, ys] = recording.isLif ? [series.v, series.dv_dt] : [series.V, series.n];
  const now = recording.index;
  const from = Math.max(0, now - Math.round(t.length * Math.min(0.3, LATELY_MS / duration)));
  const color = cssVariable("--accent");
  ink.globalAlpha = 0.3;
  line(ink, X, Y, xs, ys, { color, width: 1 });
  ink.globalAlpha = 1;
  line(ink, X, Y, xs, ys, { color, width: 2.5, from, to: now + 1 });
  dot(ink, X(xs[now]), Y(ys[now]), cssVariable("--ink"));
}

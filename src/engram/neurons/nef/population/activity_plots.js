// Plots of a running population: decoded value, input, raster, and the plane of two values, where a drag pulls the state.

import { cssVariable, dot, line, segment, canvasPlot } from "../../canvas_plot.js";
import { RASTER_S, SHOWN_S } from "./activity.js";

const RASTER = 40; // neurons
const CIRCLE = Array.from({ length: 73 }, (_, i) => (i / 36) * Math.PI);

export function activityPlots(simulation) {
  const [strip, pushed] = [decodedPlot(simulation), inputPlot(simulation)];
  const [raster, plane] = [rasterPlot(simulation), planePlot(simulation)];
  return {
    strips: [strip.canvas, pushed.canvas, raster.canvas],
    plane: plane.canvas,

    redraw() {
      const now = simulation.activity.t.at(-1) ?? 0;
      for (const [one, seconds] of [
        [strip, SHOWN_S],
        [pushed, SHOWN_S],
        [raster, RASTER_S],
      ]) {
        one.x = [Math.max(0, now - seconds), Math.max(seconds, now)];
        one.redraw();
      }
      if (simulation.system === "oscillator") plane.redraw();
    },

    // Show what a system has: an oscillator has a plane, and a stronger input.
    fit(system) {
      plane.canvas.parentElement.hidden = system !== "oscillator";
      pushed.y = system === "oscillator" ? [-11, 11] : [-3.2, 3.2];
    },

    stop: () => [strip, pushed, raster, plane].forEach((one) => one.stop()),
  };
}

function decodedPlot(simulation) {
  const plot = canvasPlot({
    label: "decoded value over time; arrow keys push",
    height: 240,
    xAxis: "→ s",
    yAxis: "decoded value",
    attributes: {
      tabindex: 0,
      role: "application",
      onkeydown: (event) => pushByKey(simulation, event),
      onkeyup: () => simulation.release(),
      onblur: () => simulation.release(),
    },
    paint: (pen, X, Y) => {
      const { t, output, targetT, target } = simulation.activity;
      pen.strokeStyle = cssVariable("--soft");
      pen.setLineDash([2, 4]);
      [-1, 1].forEach((y) => segment(pen, X(plot.x[0]), Y(y), X(plot.x[1]), Y(y)));
      pen.setLineDash([]);
      if (simulation.system === "integrator")
        line(pen, X, Y, targetT, target, { color: cssVariable("--good"), dash: [5, 4], width: 2 });
      output.forEach((one, k) =>
        line(pen, X, Y, t, one, { color: cssVariable(["--accent", "--warm"][k]), width: 1.6 }),
      );
    },
  });
  plot.y = [-1.5, 1.5];
  return plot;
}

function pushByKey(simulation, event) {
  const direction = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
  if (!direction) return;
  event.preventDefault();
  if (simulation.system === "integrator") simulation.pushTo(direction);
  else if (!event.repeat) simulation.startKick();
}

const inputPlot = (simulation) =>
  canvasPlot({
    label: "input over time",
    height: 80,
    xAxis: false,
    yAxis: "input",
    paint: (pen, X, Y) => {
      const { t, u } = simulation.activity;
      line(pen, X, Y, t, u, { color: cssVariable("--soft") });
    },
  });

function rasterPlot(simulation) {
  const plot = canvasPlot({
    label: "raster of some neurons",
    height: 210,
    xAxis: "→ s",
    yAxis: `spikes of ${RASTER} neurons in the last second`,
    paint: (pen, X, Y) => {
      const { spikeT, spikeNeuron } = simulation.activity;
      pen.fillStyle = cssVariable("--ink");
      const high = Math.max(2, Y(0) - Y(1) - 1);
      spikeT.forEach((t, i) => pen.fillRect(X(t), Y(spikeNeuron[i]) - high / 2, 1.2, high));
    },
  });
  plot.y = [-0.7, RASTER - 0.3];
  return plot;
}

function planePlot(simulation) {
  const plot = canvasPlot({
    label: "plane of the two values; drag to pull",
    height: 300,
    square: true,
    xAxis: "→ x₁",
    yAxis: "x₂",
    attributes: { class: "pixels" },
    paint: (pen, X, Y) => {
      const [one, two] = simulation.activity.output;
      if (!two?.length) return;
      line(pen, X, Y, CIRCLE.map(Math.cos), CIRCLE.map(Math.sin), {
        color: cssVariable("--soft"),
        dash: [2, 4],
      });
      line(pen, X, Y, one, two, {
        color: cssVariable("--accent"),
        from: Math.max(0, one.length - 1500),
      });
      dot(pen, X(one.at(-1)), Y(two.at(-1)), cssVariable("--ink"));
      const { target } = simulation;
      if (target) dot(pen, X(target[0]), Y(target[1]), cssVariable("--warm"), 4);
    },
  });
  [plot.x, plot.y] = [
    [-1.5, 1.5],
    [-1.5, 1.5],
  ];
  plot.canvas.addEventListener("pointerdown", (event) => {
    plot.canvas.setPointerCapture(event.pointerId);
    simulation.act({ target: plot.place(event) });
  });
  plot.canvas.addEventListener("pointermove", (event) => {
    if (simulation.target) simulation.target = plot.place(event);
  });
  for (const end of ["pointerup", "pointercancel"])
    plot.canvas.addEventListener(end, () => {
      simulation.target = null;
    });
  return plot;
}

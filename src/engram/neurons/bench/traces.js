// Traces over time with the time cursor: membrane potential, gates and ionic currents. A drag moves the cursor.

import { h } from "../../dom.js";
import { cssVariable, legend, line, segment, canvasPlot } from "../../canvas_plot.js";
import { CELLS, GATES, IONIC } from "./cells.js";
import { valueRange } from "./recording.js";

const TONES = ["--warm", "--accent", "--good"];

export function traces(recording, moveCursor) {
  const voltage = voltageTrace(recording);
  const gates = threeTraces(recording, GATES, {
    label: "gates over time",
    height: 120,
    yAxis: "gates, open probability",
  });
  const ionic = threeTraces(recording, IONIC, {
    label: "ionic currents over time",
    height: 130,
    yAxis: "ionic currents (µA/cm²), outward positive",
  });
  gates.y = [-0.03, 1.03];
  const plots = [voltage, gates, ionic];
  const channels = [
    [gates, GATES],
    [ionic, IONIC],
  ].map(([plot, names]) =>
    h(
      "div",
      plot.canvas,
      legend(Object.values(names).map((text, i) => [text, `var(${TONES[i]})`])),
    ),
  );
  for (const plot of plots)
    dragged(plot.canvas, (event) => {
      if (recording.response) moveCursor(plot.place(event)[0] / recording.response.duration);
    });

  return {
    voltage: h("div", voltage.canvas),
    channels,
    showChannels: (shown) => channels.forEach((one) => (one.hidden = !shown)),
    redraw: () => plots.forEach((plot) => plot.redraw()),
    stop: () => plots.forEach((plot) => plot.stop()),

    fit() {
      const { cell, duration, series } = recording.response;
      for (const plot of plots) plot.x = [0, duration];
      voltage.y = valueRange([recording.voltage], { least: CELLS[cell].voltage });
      voltage.yAxis = recording.isLif ? "v, spikes at 1" : "V (mV)";
      if (!recording.isLif) ionic.y = valueRange([series.I_Na, series.I_K], { minMargin: 1 });
    },
  };
}

// A plot over time: paint(ink, X, Y, response) draws below the cursor.
export function timePlot(recording, { paint, height, attributes, ...more }) {
  const plot = canvasPlot({
    height,
    attributes: {
      class: "pixels",
      style: { width: "100%", height: `${height}px`, display: "block", border: "none" },
      ...attributes,
    },
    paint: (ink, X, Y) => {
      const { response, cursor } = recording;
      if (!response) return;
      paint(ink, X, Y, response);
      const x = X(cursor * response.duration);
      ink.strokeStyle = cssVariable("--ink");
      ink.lineWidth = 1;
      ink.setLineDash([3, 3]);
      segment(ink, x, Y(plot.y[0]), x, Y(plot.y[1]));
      ink.setLineDash([]);
    },
    ...more,
  });
  return plot;
}

const voltageTrace = (recording) =>
  timePlot(recording, {
    label: "membrane potential over time",
    height: 230,
    yAxis: "V (mV)",
    xAxis: "ms",
    paint: (ink, X, Y, { t, spikes, duration }) => {
      if (recording.isLif) {
        ink.strokeStyle = cssVariable("--soft");
        ink.setLineDash([2, 4]);
        segment(ink, X(0), Y(1), X(duration), Y(1));
        ink.setLineDash([]);
        ink.strokeStyle = cssVariable("--warm");
        ink.lineWidth = 1.5;
        spikes.forEach((time) => segment(ink, X(time), Y(1), X(time), Y(1.18)));
      }
      line(ink, X, Y, t, recording.voltage, { color: cssVariable("--accent") });
    },
  });

const threeTraces = (recording, names, more) =>
  timePlot(recording, {
    ...more,
    xAxis: false,
    paint: (ink, X, Y, { t, series }) =>
      Object.keys(names).forEach((name, i) => {
        if (series[name]) line(ink, X, Y, t, series[name], { color: cssVariable(TONES[i]) });
      }),
  });

// Call act(event) when the pointer is pressed on a canvas, and while it moves.
function dragged(canvas, act) {
  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    act(event);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (canvas.hasPointerCapture(event.pointerId)) act(event);
  });
}

// Neuron bench: a chosen or hand-drawn current, the membrane potential, the phase plane, the f–I curve.

import { button, copyable, fill, h, debounce } from "../../dom.js";
import { coalesce } from "../../canvas_plot.js";
import { request } from "../../socket.js";
import { controls } from "./controls.js";
import { CurrentPlot } from "./current_plot.js";
import { fiCurve } from "./fi_curve.js";
import { phasePlane } from "./phase_plane.js";
import { playback } from "./playback.js";
import { Protocol } from "./protocol.js";
import { Recording } from "./recording.js";
import { traces } from "./traces.js";

export function mount(holder) {
  const [protocol, recording] = [new Protocol(), new Recording()];
  const status = h("p", { role: "status" });
  const [reading, same] = [h("div", { class: "mono small", id: "reading" }), h("div")];
  const failed = (error) => {
    status.textContent = error.message;
  };
  const player = playback(recording, () => {
    if (!recording.response) return;
    redraw();
    plane.updateNullclines();
  });
  const curve = fiCurve();
  const trace = traces(recording, player.moveTo);
  const plane = phasePlane({ protocol, recording, failed });
  const current = new CurrentPlot({
    protocol,
    recording,
    began: () => panel.render(),
    changed,
  });
  const panel = controls({
    protocol,
    beginDrawing: () => current.begin(),
    showCell,
    changed: onChange,
  });
  const plots = [trace, current, plane];

  const simulate = coalesce(async () => {
    const args = {
      ...protocol.parameters(),
      stimulus: protocol.stimulus(),
      duration_ms: protocol.duration,
    };
    try {
      recording.load(args, await request("neuron", args));
      status.textContent = recording.describe();
      plots.forEach((one) => one.fit());
      redraw();
      plane.updateNullclines();
    } catch (error) {
      failed(error);
    }
  });

  function redraw() {
    plots.forEach((one) => one.redraw());
    reading.textContent = recording.read();
  }

  function showCell() {
    trace.showChannels(!protocol.isLif);
    plane.showCell();
    current.showCell();
  }

  function changed() {
    simulate();
    store();
  }

  function onChange({ neuron = false, preset = false }) {
    if (neuron) curve.stop();
    changed();
    if (neuron) updateCurve();
    if (preset) player.replay();
  }
  const updateCurve = debounce(400, () => curve.update(protocol.parameters()));

  const store = debounce(250, () => {
    if (!holder.isConnected) return; // another page is shown by now
    protocol.store();
    fill(
      same,
      copyable("the same in a terminal", protocol.command()),
      protocol.needsFile &&
        button("save this current as current.csv", () => recording.saveCurrent(), {
          class: "small",
        }),
    );
  });

  fill(holder, layout({ status, reading, same, panel, trace, current, plane, curve, player }));
  panel.render();
  simulate().then(() => {
    if (recording.response && holder.isConnected) player.replay();
  });
  store();
  curve.update(protocol.parameters());
  return () => {
    player.pause();
    curve.stop();
    plots.forEach((one) => one.stop());
  };
}

const layout = ({ status, reading, same, panel, trace, current, plane, curve, player }) => [
  panel.presets,
  h(
    "div",
    { class: "two" },
    panel.panel,
    h("div", status, trace.voltage, current.elements, trace.channels),
  ),
  h("div", { class: "halves" }, plane.element, h("figure", h("h2", "f–I curve"), curve.elements)),
  h(
    "div",
    { class: "panel", style: { position: "sticky", bottom: 0, padding: ".4rem .8rem" } },
    player.element,
    reading,
  ),
  same,
];

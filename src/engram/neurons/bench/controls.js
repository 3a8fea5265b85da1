// Controls of the bench: presets, the neuron, the current, and a slider for each of their values.

import { button, dropdown, fill, h, slider } from "../../dom.js";
import { CELLS, CURRENT, KINDS, PRESETS } from "./cells.js";

const DURATIONS = ["50", "100", "200", "500"];

// After a change, changed({ neuron, preset }) is called: whether it concerns the neuron itself, and whether it is a preset.
export function controls({ protocol, beginDrawing, showCell, changed }) {
  const panel = h("div", { class: "panel" });
  const presets = h("div", { class: "row", style: { "margin-bottom": ".8rem" } });

  function render() {
    const focused = panel.contains(document.activeElement) ? document.activeElement.name : null;
    const { about, kind } = protocol;
    const neuronChanged = () => changed({ neuron: true });
    const knobs = (names, act) => names.map((name) => knob(protocol, name, act));
    fill(
      panel,
      choices(),
      knobs(CURRENT[kind], () => changed({})),
      h("div", { class: "row", style: { "margin-bottom": ".5rem" } }, currentButtons()),
      dropdown({
        label: "simulated time (ms)",
        name: "ms",
        value: String(protocol.duration),
        options: DURATIONS,
        change: (x) => {
          protocol.duration = Number(x);
          changed({});
        },
      }),
      knobs(Object.keys(about.neuron), neuronChanged),
      Object.keys(about.more).length > 0 &&
        h(
          "details",
          h("summary", "reversal potentials, temperature"),
          knobs(Object.keys(about.more), neuronChanged),
        ),
      small("reset", () => apply()),
    );
    if (focused) panel.querySelector(`[name="${focused}"]`)?.focus();
    fill(
      presets,
      PRESETS[protocol.cell].map(([text, ...preset]) =>
        small(text, () => apply(preset, { preset: true })),
      ),
    );
    showCell();
  }

  function apply(preset = [], how = {}) {
    protocol.apply(...preset);
    render();
    changed({ neuron: true, ...how });
  }

  const choices = () => [
    dropdown({
      label: "neuron",
      name: "cell",
      value: protocol.cell,
      options: Object.entries(CELLS).map(([key, one]) => [key, one.title]),
      change: (x) => {
        protocol.setCell(x);
        render();
        changed({ neuron: true });
      },
    }),
    dropdown({
      label: "current",
      name: "kind",
      value: protocol.kind,
      options: KINDS,
      change: (x) => {
        if (x === "drawn") beginDrawing();
        else protocol.kind = x;
        render();
        changed({});
      },
    }),
  ];

  const currentButtons = () => [
    small("new noise", () => {
      protocol.seed += 1;
      changed({});
    }),
    protocol.kind === "drawn" &&
      small("clear the drawing", () => {
        protocol.points.fill(0);
        changed({});
      }),
  ];

  return { panel, presets, render };
}

const small = (text, click) => button(text, click, { class: "small" });

// A slider for a value of the protocol; a double click restores its initial value.
function knob(protocol, name, act) {
  const [label, low, high, step, otherwise] = protocol.row(name);
  const own = slider({
    label,
    name,
    low,
    high,
    step,
    value: protocol.value(name),
    show: (x) => String(Number(x.toFixed(3))).replace("-", "−"),
    change: (x) => {
      protocol.setValue(name, x);
      act();
    },
  });
  own.input.addEventListener("dblclick", () => {
    protocol.setValue(name, otherwise);
    own.set(otherwise);
    act();
  });
  return own;
}

// Dynamics: an ensemble with a recurrent connection, an integrator or an oscillator, that one pushes while it runs.

import { button, dropdown, copyable, fill, h, debounce } from "../../dom.js";
import { legend } from "../../canvas_plot.js";
import { setQuery, getQuery } from "../../lab.js";
import { activityPlots } from "./activity_plots.js";
import { Simulation } from "./simulation.js";
import { sliders } from "./sliders.js";

const RUN = {
  many: ["neurons", 20, 500, 10, 300],
  tau: ["synapse τ (ms)", 10, 300, 5, 100],
  hz: ["frequency (Hz)", -3, 3, 0.1, 1],
  u: ["input u", -2, 2, 0.1, 0],
  pace: ["speed (simulated s per s)", 0.1, 1, 0.1, 1],
};
const SYSTEMS = {
  integrator: {
    caption:
      "A recurrent connection turns the ensemble into an integrator, dx/dt = u: it keeps its value without input, although each neuron forgets within 20 ms. It saturates beyond the radius of 1; with few neurons it drifts.",
    key: [
      ["decoded from spikes", "var(--accent)"],
      ["exact integral", "var(--good)"],
    ],
  },
  oscillator: {
    caption:
      "A recurrent connection that rotates the represented vector turns the ensemble into an oscillator. Kick it, drag the point in the plane, or change the frequency while it runs.",
    key: [
      ["x₁", "var(--accent)"],
      ["x₂", "var(--warm)"],
    ],
  },
};

export function dynamics(holder) {
  const status = h("p", { role: "status", id: "simulation-status" });
  const [caption, key, same] = [h("p", { class: "soft" }), h("div"), h("div")];
  const controls = h("div", { class: "panel" });
  const asked = getQuery("system", "integrator");
  const { values, made } = sliders(holder, RUN, (name) => {
    if (name === "many") simulation.restart();
    showCommand();
  });
  const simulation = new Simulation({
    system: SYSTEMS[asked] ? asked : "integrator",
    values,
    painted: () => {
      plots.redraw();
      status.textContent = describe(simulation);
    },
    toggled: (live) => {
      start.textContent = live ? "⏸ pause" : "▶ start";
    },
    failed: (error) => {
      status.textContent = error.message;
    },
  });
  const plots = activityPlots(simulation);
  const start = button(
    "▶ start",
    () => (simulation.live ? simulation.pause() : simulation.play()),
    { class: "main" },
  );

  function restart(system) {
    simulation.restart(system);
    render();
  }

  function render() {
    const { system } = simulation;
    const focused = controls.contains(document.activeElement) ? document.activeElement.name : null;
    fill(controls, controlsOf(simulation, { start, made, restart }));
    if (focused) controls.querySelector(`[name="${focused}"]`)?.focus();
    caption.textContent = SYSTEMS[system].caption;
    fill(key, legend(SYSTEMS[system].key));
    plots.fit(system);
    showCommand();
  }
  const showCommand = debounce(250, () => {
    const { system } = simulation;
    const frequency = system === "oscillator" ? ` --frequency-hz ${values.hz}` : "";
    const command = `engram run ${system} --neurons ${values.many} --tau-synapse-ms ${values.tau}${frequency}`;
    fill(same, copyable("the same in a terminal", command));
  });

  fill(
    holder,
    h("h2", "Dynamics"),
    caption,
    h(
      "div",
      { class: "two" },
      h("div", controls, h("div", { style: { "margin-top": ".8rem" } }, plots.plane)),
      h("div", status, key, plots.strips),
    ),
    same,
  );
  restart(simulation.system);
  return () => {
    simulation.stop();
    plots.stop();
  };
}

function describe({ system, activity, values }) {
  const fixed = (x) => x.toFixed(2).replace("-", "−");
  return system === "integrator"
    ? `x = ${fixed(activity.mean())}; the integral of the input is ${fixed(activity.target.at(-1))}.`
    : `radius ${fixed(Math.hypot(...activity.state()))}, frequency ${fixed(activity.frequency())} Hz; the target is ${fixed(values.hz)} Hz.`;
}

function controlsOf(simulation, { start, made, restart }) {
  const { system } = simulation;
  const row = (...buttons) =>
    h("div", { class: "row", style: { "margin-bottom": ".6rem" } }, buttons);
  return [
    dropdown({
      label: "system",
      name: "system",
      value: system,
      options: Object.keys(SYSTEMS),
      change: (x) => {
        setQuery({ system: x });
        restart(x);
      },
    }),
    row(
      start,
      button("restart", () => simulation.restart()),
    ),
    system === "oscillator"
      ? [row(button("kick", () => simulation.startKick())), made.hz]
      : [
          row(
            holdButton(simulation, "▼ push", "hold to push down", -1),
            holdButton(simulation, "▲ push", "hold to push up", 1),
            h("span", { class: "soft small" }, "hold"),
          ),
          made.u,
        ],
    made.many,
    made.tau,
    made.pace,
  ];
}

function holdButton(simulation, text, name, direction) {
  const [on, off] = [() => simulation.pushTo(direction), () => simulation.release()];
  return h(
    "button",
    {
      type: "button",
      "aria-label": name,
      onpointerdown: on,
      onpointerup: off,
      onpointerleave: off,
      onpointercancel: off,
      onkeydown: (event) => {
        if (event.key === " " || event.key === "Enter") on();
      },
      onkeyup: off,
      onblur: off,
    },
    text,
  );
}

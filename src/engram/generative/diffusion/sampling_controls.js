// Controls of one trajectory: sampler, number of steps, class and guidance.

import { dropdown, h, slider } from "../../dom.js";

const SAMPLERS = [
  ["ddpm", "DDPM: ancestral, new noise at every step"],
  ["ddim", "DDIM: deterministic"],
  ["dpm-solver-2", "DPM-Solver++ (2M): few steps"],
  ["langevin", "annealed Langevin dynamics"],
];
const STEPS = [1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 75, 100];

// prefix: of the names of the settings; set(change) is called with changed settings
export function samplingControls({ classes, name, prefix, settings, set }) {
  const nearest = STEPS.reduce(
    (best, one, i) =>
      Math.abs(one - settings.steps) < Math.abs(STEPS[best] - settings.steps) ? i : best,
    0,
  );
  return h(
    "fieldset",
    h("legend", name),
    dropdown({
      label: "sampler",
      name: `${prefix}sampler`,
      options: SAMPLERS,
      value: settings.sampler,
      change: (sampler) => set({ sampler }),
    }),
    slider({
      label: "steps",
      name: `${prefix}steps`,
      low: 0,
      high: STEPS.length - 1,
      step: 1,
      value: nearest,
      show: (i) => String(STEPS[i]),
      change: (i) => set({ steps: STEPS[i] }),
    }),
    classes.length > 0 && classControls({ classes, prefix, settings, set }),
  );
}

function classControls({ classes, prefix, settings, set }) {
  const guidance = slider({
    label: "guidance scale",
    name: `${prefix}guidance`,
    low: 0,
    high: 8,
    step: 0.25,
    value: settings.guidance,
    show: (x) => x.toFixed(2),
    change: (x) => set({ guidance: x }),
  });
  guidance.input.disabled = settings.condition === "none";
  const condition = dropdown({
    label: "class",
    name: `${prefix}class`,
    options: [
      ["none", "unconditional"],
      ["each", "each in turn"],
      ...classes.map((one, i) => [String(i), one]),
    ],
    value: settings.condition,
    change: (value) => {
      guidance.input.disabled = value === "none";
      set({ condition: value });
    },
  });
  return [condition, guidance];
}

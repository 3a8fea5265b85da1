// Settings of the bench: neuron models, currents, presets, and a drawn current as text.

export const POINTS = 201; // of a drawn current
export const KINDS = [
  ["step", "step"],
  ["ramp", "ramp"],
  ["pulses", "two pulses"],
  ["sine", "sine"],
  ["noise", "noise around a mean"],
  ["drawn", "drawn by hand"],
];
export const CURRENT = {
  // which sliders shape which current
  step: ["amplitude", "onset_ms", "length_ms", "noise"],
  ramp: ["amplitude", "onset_ms", "length_ms", "noise"],
  pulses: ["amplitude", "onset_ms", "period_ms", "width_ms", "noise"],
  sine: ["amplitude", "period_ms", "noise"],
  noise: ["amplitude", "noise"],
  drawn: ["noise"],
};
const TIMES = {
  onset_ms: ["onset (ms)", 0, 200, 1, 20],
  length_ms: ["duration (ms)", 1, 400, 1, 130],
  period_ms: ["period (ms)", 2, 100, 0.5, 15],
  width_ms: ["pulse width (ms)", 0.5, 20, 0.5, 1],
};
export const CELLS = {
  // name: [label, low, high, step, value]
  "hodgkin-huxley": {
    title: "Hodgkin–Huxley",
    unit: "µA/cm²",
    heights: [-20, 40],
    voltage: [-90, 60],
    maxCurrent: 40,
    step: 0.01,
    neuron: {
      g_Na: ["g_Na (mS/cm²)", 0, 300, 1, 120],
      g_K: ["g_K (mS/cm²)", 0, 100, 0.5, 36],
      g_L: ["g_L (mS/cm²)", 0.05, 2, 0.05, 0.3],
    },
    more: {
      V_Na: ["V_Na (mV)", 0, 100, 1, 50],
      V_K: ["V_K (mV)", -120, -40, 1, -77],
      V_L: ["V_L (mV)", -90, -20, 0.5, -54.387],
      temperature_C: ["temperature (°C)", 0, 30, 0.1, 6.3],
    },
    current: {
      amplitude: ["current (µA/cm²)", -20, 40, 0.1, 10],
      ...TIMES,
      noise: ["noise (µA/cm²)", 0, 20, 0.1, 0],
    },
  },
  lif: {
    title: "leaky integrate-and-fire",
    unit: "1 = threshold",
    heights: [-1, 5],
    voltage: [-0.2, 1.2],
    maxCurrent: 5,
    step: 0.1,
    neuron: { tau_m_ms: ["τ_m (ms)", 2, 100, 1, 20], tau_ref_ms: ["τ_ref (ms)", 0, 20, 0.5, 2] },
    more: {},
    current: { amplitude: ["input", -1, 5, 0.01, 1.5], ...TIMES, noise: ["noise", 0, 3, 0.05, 0] },
  },
};
export const PRESETS = {
  "hodgkin-huxley": [
    ["a step", "step", {}],
    ["rebound spike after inhibition", "step", { amplitude: -10, length_ms: 60 }],
    ["refractory to a second pulse", "pulses", { amplitude: 20, period_ms: 9 }],
    ["a slow ramp", "ramp", { amplitude: 8, length_ms: 170 }],
    ["a fast ramp", "ramp", { amplitude: 8, length_ms: 10 }],
    ["sodium channels blocked", "step", { g_Na: 0 }],
    ["20 °C", "step", { temperature_C: 20, amplitude: 25 }],
  ],
  lif: [
    ["a step", "step", {}],
    ["below threshold", "step", { amplitude: 0.95 }],
    ["temporal summation of two pulses", "pulses", { amplitude: 5, period_ms: 6, width_ms: 3 }],
    ["noise-driven spikes", "noise", { amplitude: 0.8, noise: 0.8 }],
    ["long refractory period", "step", { tau_ref_ms: 20, amplitude: 4 }],
  ],
};
export const GATES = {
  m: "m, sodium activation",
  h: "h, sodium inactivation",
  n: "n, potassium activation",
};
export const IONIC = { I_Na: "I_Na, sodium", I_K: "I_K, potassium", I_L: "I_L, leak" };

// Encode a drawn current for the URL: two characters per value.
export function encodeCurrent(heights, cell) {
  const [low, high] = CELLS[cell].heights;
  return Array.from(heights, (x) =>
    Math.round(((x - low) / (high - low)) * 1295)
      .toString(36)
      .padStart(2, "0"),
  ).join("");
}

export function decodeCurrent(text, cell) {
  const [low, high] = CELLS[cell].heights;
  const pairs = text.match(/../g) ?? [];
  return pairs.length === POINTS
    ? Float32Array.from(pairs, (pair) => low + (parseInt(pair, 36) / 1295) * (high - low))
    : new Float32Array(POINTS);
}

// Parse the settings in the URL; ignores what is malformed.
export function parseSettings(text) {
  try {
    const set = JSON.parse(text);
    return Object.fromEntries(Object.keys(CELLS).map((cell) => [cell, { ...set[cell] }]));
  } catch {
    return {};
  }
}

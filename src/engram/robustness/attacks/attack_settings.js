// Settings of an attack: method, steps, norm, target class, seed and the slider of eps; only those that the method has.

import { button, dropdown, fill, h, slider } from "../../dom.js";

const METHODS = [
  ["noise", "random noise"],
  ["fgsm", "FGSM (one step)"],
  ["pgd", "PGD (many steps)"],
  ["minimal", "minimal norm (DeepFool, DDN)"],
];
const NORMS = [
  ["linf", "L∞: largest change of a pixel"],
  ["l2", "L2: Euclidean length"],
];

const setVisible = (element, visible) =>
  element.style.setProperty("display", visible ? "" : "none");

// `changed` is called after a setting has changed, `changedSoon` while a slider moves, `epsChanged` after that of eps.
export function attackSettings({ about, state, changed, changedSoon, epsChanged }) {
  const choice = (label, name, options, parse = (text) => text) =>
    dropdown({
      label,
      name,
      options,
      value: String(state[name]),
      change: (text) => {
        state[name] = parse(text);
        if (name === "norm") showEps();
        changed();
      },
    });
  const methods = choice("attack", "method", METHODS);
  const norms = choice("norm", "norm", NORMS);
  const classes = about.classes.map((name, i) => [String(i), name]);
  const targets = choice(
    "target class",
    "target",
    [["-1", "any other (untargeted)"], ...classes],
    Number,
  );
  const steps = slider({
    label: "steps",
    name: "steps",
    low: 1,
    high: 100,
    step: 1,
    value: state.steps,
    change: (value) => {
      state.steps = value;
      changedSoon();
    },
  });
  const reseed = button(
    "another seed",
    () => {
      state.seed += 1;
      changed();
    },
    { class: "small" },
  );
  const eps = h("div", { style: { "max-width": "38rem" } });
  const showEps = () => fill(eps, epsSlider(about, state, epsChanged));

  function showMethod() {
    setVisible(steps, state.method === "pgd");
    setVisible(targets, state.method !== "minimal");
    setVisible(reseed, ["noise", "pgd"].includes(state.method));
    setVisible(eps, state.method !== "minimal");
  }

  showEps();
  return { elements: [methods, steps, norms, targets, reseed, threat(about)], eps, showMethod };
}

const epsSlider = ({ max_eps }, state, changed) =>
  slider({
    label: "ε, largest norm of the perturbation",
    name: "eps",
    low: 0,
    high: max_eps[state.norm],
    step: state.norm === "linf" ? 0.005 : 0.05,
    value: state.eps[state.norm],
    show: (x) => x.toFixed(state.norm === "linf" ? 3 : 2),
    change: (x) => {
      state.eps[state.norm] = x;
      changed();
    },
  });

// What the model was trained against.
const threat = ({ threat: trained }) =>
  trained &&
  h(
    "p",
    { class: "soft small", style: { "margin-top": ".7rem" } },
    `Adversarially trained with ε = ${trained.eps} in ${trained.norm === "linf" ? "L∞" : "L2"}.`,
  );

// Form of a new run, with the equivalent command line and Python.

import { button, copyable, fill, h, debounce } from "../dom.js";
import { form } from "../forms.js";
import { setQuery, getQuery } from "../lab.js";
import { request, channel } from "../socket.js";

const FIRST = ["preset", "data", "steps"];

// started: called with the name of a run that was started
export function newRun(system, data, started) {
  const presets = Object.keys(system.presets);
  const changed = debounce(150, check);
  const fields = settingsForm(system, data, (name) => {
    if (name === "preset") fields.set(system.presets[fields.values().preset]);
    changed();
  });
  const error = h("p", { class: "error", role: "alert" });
  const equivalents = h("div");
  const runButton = button("Run", start, { class: "main" });
  const latest = channel();
  const params = () => ({
    recipe: system.name,
    preset: fields.values().preset,
    settings: settings(),
  });

  // Settings that differ from those of the preset.
  function settings() {
    const { preset, ...values } = fields.values();
    const defaults = system.presets[preset] ?? system.presets[presets[0]];
    const differs = ([name, value]) =>
      name === "keep_checkpoints" || JSON.stringify(value) !== JSON.stringify(defaults[name]);
    return Object.fromEntries(Object.entries(values).filter(differs));
  }

  async function check() {
    const { preset, settings: set } = params();
    delete set.keep_checkpoints;
    setQuery({
      preset: preset === presets[0] ? "" : preset,
      set: Object.keys(set).length ? JSON.stringify(set) : "",
    });
    try {
      const { command, python } = await latest("check", params());
      fill(
        equivalents,
        h(
          "div",
          { class: "halves" },
          copyable("command line", command),
          copyable("Python", python),
        ),
      );
      showError("");
    } catch (problem) {
      showError(problem.message);
    }
  }

  function showError(message) {
    fields.showError(message);
    error.textContent = message;
    runButton.disabled = Boolean(message);
  }

  async function start() {
    runButton.disabled = true;
    try {
      const { name } = await request("start", params());
      started(name);
    } catch (problem) {
      showError(problem.message);
    }
    runButton.disabled = Boolean(error.textContent);
  }

  changed();
  return h(
    "section",
    h("h2", "New run"),
    h(
      "div",
      { class: "panel" },
      fields.main,
      h("details", h("summary", "All settings"), fields.more),
      h("div", { class: "row" }, runButton, error),
      equivalents,
    ),
  );
}

// Two forms, of the settings that matter most and of all others, that act as one.
function settingsForm(system, data, change) {
  const presets = Object.keys(system.presets);
  const preset = getQuery("preset", presets[0]);
  const controls = system.controls.map((one) =>
    one.name === "preset" ? { ...one, kind: "choice", options: presets } : one,
  );
  const isFirst = ({ name }) => FIRST.includes(name);
  const first = controls
    .filter(isFirst)
    .sort((a, b) => FIRST.indexOf(a.name) - FIRST.indexOf(b.name))
    .map((one) => ({ ...one, group: "" }));
  const rest = controls.filter((one) => !isFirst(one));
  const initial = { ...system.presets[preset], ...JSON.parse(getQuery("set", "{}")), preset };
  const suggestions = { data: [...data.uploads, ...data.sets.map((one) => one.name)] };
  const [main, more] = [form(first, initial, change, suggestions), form(rest, initial, change)];
  const both = [main, more];
  return {
    main,
    more,
    values: () => ({ ...main.values(), ...more.values() }),
    set: (changes) => both.forEach((one) => one.set(changes)),
    showError: (message) => both.forEach((one) => one.showError(message)),
  };
}

// One system: what it is, its equations, its controls, and a run of it, live.

import { drawFigureWhenSeen } from "../charts.js";
import { button, copyable, fill, h, mathml, notice, settled } from "../dom.js";
import { form } from "../forms.js";
import { keep, kept } from "../lab.js";
import { ask, channel, follow } from "../link.js";
import { Curves } from "../curves.js";
import { clock } from "./runs.js";

const SAID = 500;  // milliseconds between two words on how far a run is: text is laid out anew each time
const FIRST = ["preset", "data", "steps", "from_"];

export async function show(holder, name) {
  const system = await ask("system", { name });
  const [{ instruments }, data] = await Promise.all([ask("systems"), ask("data")]);
  const run = h("section", { class: "run", hidden: true });
  const others = h("div", { class: "row" });
  let leave = () => {};
  let shown = "";

  async function open(chosen) {
    if (shown === chosen) return;
    leave();
    shown = chosen;
    keep({ run: chosen });
    run.hidden = !chosen;
    if (chosen) leave = runView(run, chosen, system);
    mark();
  }

  const mark = () => [...others.querySelectorAll("button[data-run]")].forEach((one) => one.setAttribute("aria-pressed", one.dataset.run === shown));
  fill(holder,
    h("h1", system.title), h("p", system.said, h("span", { class: "soft" }, ` Notes ${system.notes}.`)),
    system.instruments.length > 0 && h("p", system.instruments.map((one) => [h("a", { class: "button", href: `/instruments/${one}` }, `⌁ ${instruments[one].title}`), " "])),
    equations(system), plan(system, data, (started) => { open(started); run.scrollIntoView({ block: "start" }); }), others, run);

  const stop = follow("runs", {}, ({ runs }) => {
    const own = runs.filter((one) => one.recipe === name || (!one.recipe && one.name.startsWith(`${name}-`)));
    fill(others, own.length > 0 && h("span", { class: "soft" }, "Runs:"), own.slice(0, 12).map((one) => button(one.name, () => open(one.name), { class: "small", data: { run: one.name } })));
    mark();
    if (!shown) open(kept("run") || own[0]?.name || "");
  });
  return () => { stop(); leave(); };
}

function equations(system) {
  const own = system.modules.filter((one) => one.equations.length);
  const block = ({ module, equations: list, title }, i) => {
    const rows = list.map((one) => [
      h("div", { class: "left" }, one.label && h("span", { class: "soft" }, `${one.label} `), one.mathml ? mathml(one.mathml) : h("span", one.text)),
      h("div", { class: "soft" }, one.said),
      one.lines.length ? h("a", { href: `/source/${module}?lines=${one.lines.join(",")}`, title: `line ${one.lines.join(", ")} of ${module}` }, `(${one.number})`) : h("span", { class: "soft" }, `(${one.number})`)]);
    return h("details", { open: i === 0 }, h("summary", title), h("div", { class: "equations" }, rows), h("p", { class: "small" }, h("a", { href: `/source/${module}` }, `${module}`)));
  };
  return h("section", h("h2", "Equations"), own.map(block));
}

// The controls, the command line and the Python that do the same, and the button that does it.
function plan(system, data, started) {
  const presets = Object.keys(system.presets);
  const preset = kept("preset", presets[0]);
  const usual = () => system.presets[values.values().preset] ?? system.presets[presets[0]];
  const names = [...data.own, ...data.sets.map((one) => one.name)];
  const controls = system.controls.map((one) => (one.name === "preset" ? { ...one, kind: "choice", options: presets } : one));
  const order = (one) => (FIRST.includes(one.name) ? FIRST.indexOf(one.name) : FIRST.length);
  const first = controls.filter((one) => FIRST.includes(one.name) && one.name !== "from_").sort((a, b) => order(a) - order(b)).map((one) => ({ ...one, group: "" }));
  const rest = controls.filter((one) => !first.some((other) => other.name === one.name));
  const begin = { ...system.presets[preset], ...JSON.parse(kept("set", "{}")), preset };
  const changed = settled(150, check);
  const set = (name) => { if (name === "preset") values.set(system.presets[values.values().preset]); changed(); };
  const [main, more] = [form(first, begin, set, { data: names }), form(rest, begin, set)];
  const values = { values: () => ({ ...main.values(), ...more.values() }), set: (given) => { main.set(given); more.set(given); } };
  const said = h("p", { class: "wrongly", role: "alert" });
  const same = h("div");
  const go = button("Run", start, { class: "main" });
  const latest = channel();

  function settings() {
    const all = values.values();
    return Object.fromEntries(Object.entries(all).filter(([name, value]) => name !== "preset" && (name === "keep" || JSON.stringify(value) !== JSON.stringify(usual()[name]))));
  }
  const asked = () => ({ recipe: system.name, preset: values.values().preset, settings: settings() });

  async function check() {
    const { keep: _, ...set } = settings();
    keep({ preset: values.values().preset === presets[0] ? "" : values.values().preset, set: Object.keys(set).length ? JSON.stringify(set) : "" });
    try {
      const { command, python } = await latest("check", asked());
      fill(same, h("div", { class: "halves" }, copyable("command line", command), copyable("Python", python)));
      blame("");
    } catch (error) {
      blame(error.message);
    }
  }

  function blame(sentence) {
    main.blame(sentence);
    more.blame(sentence);
    said.textContent = sentence;
    go.disabled = Boolean(sentence);
  }

  async function start() {
    go.disabled = true;
    try {
      const { name } = await ask("start", asked());
      started(name);
    } catch (error) {
      blame(error.message);
    }
    go.disabled = Boolean(said.textContent);
  }

  changed();
  return h("section", h("h2", "Run it"), h("div", { class: "panel" }, main, h("details", h("summary", "All settings"), more), h("div", { class: "row" }, go, said), same));
}

// A run: state, buttons, curves, the checkpoint slider, and what follows it.
function runView(holder, name, system) {
  const buttons = h("div", { class: "row" });
  const state = h("span", { class: "state" });
  const pace = h("span", { class: "soft" });
  const error = h("p", { class: "wrongly", role: "alert" });
  const bar = h("div", { class: "progress", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" }, h("div"));
  const plots = h("div", { class: "halves curves" });
  const cards = h("ul", { class: "cards" });
  const curves = new Curves(plots);
  const views = viewsOf(name, system);
  const about = h("div");
  let status = null;
  let details = null;
  let known = "";
  let said = 0;
  fill(holder, h("h2", name, " ", state), buttons, bar, pace, error, cards, plots, views, about);

  const tell = (order, seconds = 0) => ask("tell", { name, order, seconds }).catch((problem) => notice(problem.message));
  const slow = h("input", { type: "checkbox", id: "slow", onchange: () => tell("pace", slow.checked ? 0.5 : 0) });
  const more = h("input", { type: "number", min: 1, step: 1, "aria-label": "steps in all", class: "small" });

  function controls() {
    const now = status.state;
    const active = ["running", "paused"].includes(now);
    const idle = ["idle", "stopped", "failed", "finished"].includes(now);
    slow.checked = status.slow > 0;
    fill(buttons,
      now === "running" && button("Pause", () => tell("pause")),
      now === "paused" && button("Go on", () => tell("go"), { class: "main" }),
      active && button("One step", () => tell("step")),
      active && h("label", { class: "row small" }, slow, "slow motion"),
      (active || now === "starting" || now === "waiting") && button("Stop", () => tell("stop")),
      idle && details && [!details.finished && button("Resume", () => resume(0), { class: "main" }), h("span", { class: "row small" }, "up to step", more, button("Go on", () => resume(Number(more.value)), { class: "small" }))],
      details && h("a", { class: "small", href: `/files/${name}.zip`, download: `${name}.zip` }, "download"),
      details?.report && h("a", { class: "small", href: `/files/${name}/report.html`, target: "_blank", rel: "noopener" }, "report"));
  }

  async function resume(steps) {
    await ask("resume", { name, steps }).catch((problem) => notice(problem.message));
  }

  async function refresh() {
    try { details = await ask("run", { name }); } catch { details = null; }
    if (details) {
      if (!more.value) more.value = 2 * details.steps;
      fill(cards, Object.entries(details.said).map(([key, value]) => h("li", h("b", value), h("span", key))), h("li", h("b", clock(details.seconds)), h("span", "time")));
      fill(about, h("details", h("summary", "Settings, command line, Python, samples"),
        h("div", { class: "halves" }, copyable("command line", details.command), copyable("Python", details.python)),
        h("div", { class: "row" }, details.samples.filter((one) => one.endsWith(".png")).slice(-4).map((one) => h("img", { class: "sample", src: `/files/${name}/samples/${one}`, alt: `sample ${one}` }))),
        h("div", { class: "scroll" }, h("table", h("tbody", Object.entries(details.settings).map(([key, value]) => h("tr", h("td", { class: "soft" }, key), h("td", { class: details.changed.includes(key) ? "set" : false }, JSON.stringify(value)))))))));
    }
    if (status) { controls(); say(); }
  }

  function say() {
    state.textContent = { idle: details?.finished ? "finished" : "stopped", elsewhere: "running elsewhere" }[status.state] ?? status.state;
    state.className = `state ${status.state}`;
    pace.textContent = status.step ? `step ${status.step}${details ? ` of ${details.steps}` : ""}${status.pace ? ` · ${status.pace}` : ""}` : "";
    error.textContent = status.error;
    if (details) { bar.firstChild.style.setProperty("width", `${(100 * status.step) / details.steps}%`); bar.setAttribute("aria-valuenow", Math.round((100 * status.step) / details.steps)); }
    bar.hidden = !["running", "paused", "drawing"].includes(status.state);
  }

  const stop = follow("watch", { name }, (part) => {
    curves.add(part);
    if (part.status) {
      const before = status;
      status = part.status;
      if (before?.state !== status.state) { refresh(); controls(); }
      if (before?.state !== status.state || status.state !== "running" || performance.now() - said > SAID) { said = performance.now(); say(); }
    }
    if (part.checkpoints && JSON.stringify(part.checkpoints) !== known) {
      known = JSON.stringify(part.checkpoints);
      views.offer(part.checkpoints);
      refresh();
    }
  }, (problem) => { error.textContent = problem.message; });
  return () => { stop(); views.leave(); curves.stop(); };
}

// Figures, a look inside and samples, all of the checkpoint that the slider stands at.
function viewsOf(name, system) {
  const [figures, looks, makes] = [channel(), channel(), channel()];
  const slider = h("input", { type: "range", min: 0, max: 0, step: 1, value: 0, id: "checkpoint", name: "checkpoint", oninput: () => { chosen = Number(slider.value) === steps.length - 1 ? null : Number(slider.value); at(); } });
  const where = h("output", { for: "checkpoint" });
  const holder = h("div", { class: "halves figures" });
  const inside = h("div", { class: "halves" });
  const made = h("div", { role: "status" });
  const subject = form(system.subject, {}, () => {});
  const wanted = form([...system.ask, ...[{ name: "count", flag: "count", help: "how many; 0 as many as usual", kind: "int", value: 0, low: 0, high: null, group: "" }, { name: "seed", flag: "seed", help: "number that the randomness starts from", kind: "int", value: 0, low: 0, high: null, group: "" }]], {}, () => {});
  let [seen, stale] = [false, false];  // figures are drawn for those who look: a machine that learns has enough to do
  const looking = new IntersectionObserver(([{ isIntersecting }]) => { seen = isIntersecting; if (seen && stale) moved(); });
  let steps = [];
  let chosen = null;  // a place on the slider, or null for whatever is newest

  const step = () => (chosen === null ? -1 : steps[chosen]);
  function at() {
    where.textContent = steps.length ? `checkpoint of step ${steps[chosen ?? steps.length - 1]}${chosen === null ? ", the newest" : ""}` : "no checkpoint yet";
    moved();
  }
  const moved = settled(250, async () => {
    if (!steps.length) return;
    stale = !seen;
    if (!stale) await drawInto(holder, figures, "views.figures", { run: name, step: step() });
    if (inside.hasChildNodes()) look();
    if (made.hasChildNodes()) make();
  });

  async function drawInto(place, latest, what, given) {
    let i = 0;
    place.setAttribute("aria-busy", "true");
    try {
      await latest(what, given, (part) => {
        if (part.said !== undefined) { place.dataset.said = part.said; return; }
        if (!place.children[i]) place.append(h("figure", h("h3"), h("figcaption"), h("div")));
        const [title, caption, plot] = place.children[i].children;
        title.textContent = part.title;
        caption.textContent = part.caption;
        drawFigureWhenSeen(plot, part.plot);
        i += 1;
      });
      while (place.children.length > i) place.lastChild.remove();
    } catch (error) {
      fill(place, h("p", { class: "wrongly" }, error.message));
    }
    place.removeAttribute("aria-busy");
  }

  const look = () => drawInto(inside, looks, "views.look", { run: name, step: step(), subject: subject.values() });
  async function make() {
    const { count, seed, ...asked } = wanted.values();
    fill(made, h("p", { class: "soft" }, "…"));
    try {
      const { text, image } = await makes("views.sample", { run: name, step: step(), count, seed, asked });
      fill(made, image && h("img", { class: "sample", src: image, alt: "what it made" }), h("pre", text));
    } catch (error) {
      fill(made, h("p", { class: "wrongly" }, error.message));
    }
  }

  looking.observe(holder);
  const element = h("div", h("div", { class: "slider panel" }, h("label", { for: "checkpoint" }, "Look back"), where, slider), h("h3", "Figures"), holder,
    h("details", h("summary", "Look inside"), subject, button("Look", look), inside),
    h("details", h("summary", system.learns ? "Let it make something" : "Let it run anew"), wanted, button("Make", make), made));
  element.hidden = true;
  return Object.assign(element, {
    offer(list) {
      const before = chosen === null ? null : steps[chosen];
      steps = list;
      element.hidden = !steps.length;
      slider.max = Math.max(0, steps.length - 1);
      chosen = before === null || !steps.includes(before) ? null : steps.indexOf(before);
      slider.value = chosen ?? steps.length - 1;
      slider.disabled = steps.length < 2;
      at();
    },
    leave() { figures.stop(); looks.stop(); makes.stop(); looking.disconnect(); },
  });
}

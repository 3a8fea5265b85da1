// Neuron bench: a current, chosen or drawn; the voltage that answers it; the phase plane at a moment; rates by current.

import { button, choice, copyable, fill, h, settled, slider, still } from "../dom.js";
import { keep, kept } from "../lab.js";
import { ask, unpacked } from "../link.js";
import { css, dot, legend, line, paced, segment, sheet } from "../traces.js";
import { CELLS, CURRENT, GATES, IONIC, KINDS, POINTS, TRIES, decoded, encoded, settings } from "./neuron/cells.js";
import { rateCurve } from "./neuron/rates.js";

const PLAYED_MS = 7000;
const hue = { get ink() { return css("--ink"); }, get accent() { return css("--accent"); }, get warm() { return css("--warm"); }, get good() { return css("--good"); } };

export function mount(holder) {
  const rates = rateCurve();
  const set = settings(kept("set", "{}"));
  let [cell, kind, seed, duration] = [kept("cell", "hodgkin-huxley"), kept("current", "step"), Number(kept("seed", "0")), Number(kept("ms", "200"))];
  if (!CELLS[cell]) cell = "hodgkin-huxley";
  if (!CURRENT[kind]) kind = "step";
  let drawn = decoded(kept("drawn"), cell);
  let answer = null;
  let stills = null;
  let moment = 0.35;  // part of the whole time
  let pen = Math.round(POINTS / 4);
  let playing = null;

  const all = () => ({ ...CELLS[cell].neuron, ...CELLS[cell].more, ...CELLS[cell].current });
  const value = (name) => set[cell]?.[name] ?? all()[name][4];
  const turned = (name, x) => { (set[cell] ??= {})[name] = x; };

  // ---------------------------------------------------------------- what is asked

  const parameters = () => {
    const own = Object.fromEntries(Object.keys({ ...CELLS[cell].neuron, ...CELLS[cell].more }).map((name) => [name, value(name)]));
    return { cell, [cell === "lif" ? "leaky" : "channels"]: own };
  };
  const injected = () => ({
    kind, seed, noise: value("noise"), ...(kind === "drawn" ? { drawn: Array.from(drawn) } : { amplitude: value("amplitude"), period_ms: value("period_ms") }),
    ...(["step", "ramp", "pulses"].includes(kind) ? { onset_ms: value("onset_ms"), offset_ms: value("onset_ms") + value("length_ms"), width_ms: value("width_ms") } : {}),
  });

  const look = paced(async () => {
    const asked = { ...parameters(), injected: injected(), duration_ms: duration };
    try {
      const found = await ask("neuron", asked);
      const series = Object.fromEntries(Object.entries(found.series).map(([name, row]) => [name, unpacked(row).values]));
      answer = { cell: asked.cell, tau: asked.leaky?.tau_m_ms, duration: asked.duration_ms, t: unpacked(found.t).values, J: unpacked(found.J).values, spikes: found.spikes, series };
      const gaps = answer.spikes.slice(1).map((time, i) => time - answer.spikes[i]);
      const mean = gaps.reduce((a, b) => a + b, 0) / gaps.length;
      said.textContent = `${found.count === 1 ? "1 spike" : `${found.count} spikes`} in ${answer.duration} ms${gaps.length ? `, ${(1000 / mean).toFixed(0)} Hz from the first to the last` : ""}`;
      paint();
      lookStill();
    } catch (error) {
      said.textContent = error.message;
    }
  });

  const lookStill = paced(async () => {
    if (answer?.cell !== "hodgkin-huxley" || cell !== answer.cell) return;
    const [at, now] = [JSON.stringify(parameters()), Math.round(answer.J[index()] * 10) / 10];
    if (stills?.at === at && stills.now === now) return;
    try {
      stills = { at, now, ...await ask("neuron.still", { ...parameters(), current: now }) };
      plane.again();
    } catch (error) {
      said.textContent = error.message;
    }
  });

  // ---------------------------------------------------------------- what is painted

  const index = () => Math.min(answer.t.length - 1, Math.max(0, Math.round(moment * (answer.t.length - 1))));
  const scrubbed = { class: "pixels", style: { width: "100%", height: "0", display: "block", border: "none" } };
  const cursor = (ink, X, [low, high], Y) => { ink.strokeStyle = hue.ink; ink.lineWidth = 1; ink.setLineDash([3, 3]); segment(ink, X(moment * answer.duration), Y(low), X(moment * answer.duration), Y(high)); ink.setLineDash([]); };
  const traces = (made, names, colours) => (ink, X, Y) => {
    if (!answer?.series[names[0]]) return;
    names.forEach((name, i) => line(ink, X, Y, answer.t, answer.series[name], { colour: colours()[i] }));
    cursor(ink, X, made().y, Y);
  };
  const over = (label, height, yAxis, xAxis, more = {}) => sheet({ label, height, yAxis, xAxis, paint: () => {}, attributes: { ...scrubbed, style: { ...scrubbed.style, height: `${height}px` }, ...more } });
  const three = () => [hue.warm, hue.accent, hue.good];

  const voltage = over("membrane voltage over time", 230, "V, mV", "ms");
  voltage.paint = (ink, X, Y) => {
    if (!answer) return;
    const v = answer.series.V ?? answer.series.v;
    if (answer.cell === "lif") {
      ink.strokeStyle = css("--soft"); ink.setLineDash([2, 4]); segment(ink, X(0), Y(1), X(answer.duration), Y(1)); ink.setLineDash([]);
      ink.strokeStyle = hue.warm; ink.lineWidth = 1.5;
      answer.spikes.forEach((time) => segment(ink, X(time), Y(1), X(time), Y(1.18)));
    }
    line(ink, X, Y, answer.t, v, { colour: hue.accent });
    cursor(ink, X, voltage.y, Y);
  };
  const gates = over("gates over time", 120, "gates, part open", false);
  gates.paint = traces(() => gates, ["m", "h", "n"], three);
  const ionic = over("ionic currents over time", 130, "ionic currents, µA/cm², outwards positive", false);
  ionic.paint = traces(() => ionic, ["I_Na", "I_K", "I_L"], three);
  const hand = over("injected current: draw on it, or use the arrow keys", 140, "", "ms", { tabindex: 0, role: "application", onkeydown: typed, onfocus: () => hand.again(), onblur: () => hand.again() });
  hand.paint = (ink, X, Y) => {
    if (!answer) return;
    line(ink, X, Y, answer.t, answer.J, { colour: hue.warm });
    if (kind === "drawn") line(ink, X, Y, places(), drawn, { colour: hue.warm, width: 2.5 });
    if (document.activeElement === hand.canvas) dot(ink, X(places()[pen]), Y(height(pen)), hue.ink, 4);
    cursor(ink, X, hand.y, Y);
  };
  const plane = sheet({ label: "phase plane", height: 380, square: true, xAxis: "V, mV", yAxis: "n", paint: (ink, X, Y) => answer && paintPlane(ink, X, Y) });

  function paintPlane(ink, X, Y) {
    const [xs, ys] = answer.cell === "lif" ? [answer.series.v, answer.series.slope] : [answer.series.V, answer.series.n];
    const now = index();
    const lately = Math.max(0, now - Math.round(answer.t.length * Math.min(0.3, 12 / answer.duration)));
    if (answer.cell !== "lif" && stills) {
      line(ink, X, Y, stills.V, stills.V_still, { colour: hue.warm, dash: [6, 4] });
      line(ink, X, Y, stills.V, stills.n_still, { colour: hue.good, dash: [2, 3] });
    }
    if (answer.cell === "lif") {
      line(ink, X, Y, [-2, 2], [-2, 2].map((v) => (answer.J[now] - v) / answer.tau), { colour: hue.warm, dash: [6, 4] });
      line(ink, X, Y, [-2, 2], [0, 0], { colour: hue.good, dash: [2, 3] });
    }
    ink.globalAlpha = 0.3;
    line(ink, X, Y, xs, ys, { colour: hue.accent, width: 1 });
    ink.globalAlpha = 1;
    line(ink, X, Y, xs, ys, { colour: hue.accent, width: 2.5, from: lately, to: now + 1 });
    dot(ink, X(xs[now]), Y(ys[now]), hue.ink);
  }

  function paint() {
    const leaky = answer.cell === "lif";
    for (const one of [voltage, gates, ionic, hand]) one.x = [0, answer.duration];
    const [low, high] = spread([leaky ? answer.series.v : answer.series.V]);
    const about = CELLS[answer.cell];
    voltage.y = [Math.min(about.voltage[0], low), Math.max(about.voltage[1], high)];
    const J = spread([answer.J]);
    hand.y = [Math.min(about.heights[0], J[0]), Math.max(about.heights[1], J[1])];
    if (!leaky) { gates.y = [-0.03, 1.03]; ionic.y = spread([answer.series.I_Na, answer.series.I_K], 1); }
    [voltage.yAxis, plane.xAxis, plane.yAxis] = leaky ? ["v, and spikes at 1", "→ v", "dv/dt, per ms"] : ["V, mV", "→ V, mV", "n"];
    plane.x = leaky ? [-0.2, 1.2] : [-90, 60];
    plane.y = leaky ? spread([answer.series.slope], 0.01) : [Math.min(0.2, spread([answer.series.n])[0]), 0.9];
    repaint();
  }

  function repaint() {
    [voltage, gates, ionic, hand, plane].forEach((one) => one.again());
    const at = index();
    const number = (x, digits) => x.toFixed(digits).replace("-", "−");
    const { series } = answer;
    reading.textContent = `${number(answer.t[at], 1)} ms: ` + (answer.cell === "lif" ? `input ${number(answer.J[at], 2)}, v ${number(series.v[at], 3)}, dv/dt ${number(series.slope[at], 3)} per ms`
      : `J ${number(answer.J[at], 1)} µA/cm², V ${number(series.V[at], 1)} mV, m ${number(series.m[at], 2)}, h ${number(series.h[at], 2)}, n ${number(series.n[at], 2)}`);
  }

  // ---------------------------------------------------------------- hands

  const places = () => Array.from({ length: POINTS }, (_, i) => i / (POINTS - 1) * duration);
  const height = (i) => (kind === "drawn" ? drawn[i] : answer.J[Math.min(answer.J.length - 1, Math.round(i / (POINTS - 1) * answer.J.length))]);
  const within = (x) => Math.max(CELLS[cell].heights[0], Math.min(CELLS[cell].heights[1], x));

  function byHand() {  // what is there becomes what is drawn on
    if (kind === "drawn" || !answer) return;
    drawn = Float32Array.from({ length: POINTS }, (_, i) => within(height(i)));
    turned("noise", 0);
    kind = "drawn";
    offer();
  }

  let last = null;
  function drawTo(event) {
    const [t, J] = hand.place(event);
    const at = Math.max(0, Math.min(POINTS - 1, Math.round(t / duration * (POINTS - 1))));
    const to = { at, J: within(J) };
    const from = last ?? to;
    for (let i = Math.min(from.at, at); i <= Math.max(from.at, at); i += 1) drawn[i] = from.at === at ? to.J : from.J + (to.J - from.J) * (i - from.at) / (at - from.at);
    last = to;
    pen = at;
    hand.again();
    changed();
  }
  hand.canvas.addEventListener("pointerdown", (event) => {
    if (!answer || event.button) return;
    hand.canvas.setPointerCapture(event.pointerId);
    byHand();
    last = null;
    drawTo(event);
  });
  hand.canvas.addEventListener("pointermove", (event) => { if (hand.canvas.hasPointerCapture(event.pointerId)) (event.getCoalescedEvents?.() ?? [event]).concat(event).forEach(drawTo); });

  function typed(event) {
    const [far, [low, high]] = [event.shiftKey ? 10 : 1, CELLS[cell].heights];
    const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const up = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!answer || (!across && !up)) return;
    event.preventDefault();
    if (across) pen = Math.max(0, Math.min(POINTS - 1, pen + across * far));
    else {
      byHand();
      for (let i = Math.max(0, pen - 5); i <= Math.min(POINTS - 1, pen + 5); i += 1) drawn[i] = within(drawn[i] + up * far * (high - low) / 80);
      changed();
    }
    hand.again();
    penSaid.textContent = `pen at ${places()[pen].toFixed(0)} ms, ${height(pen).toFixed(2)}`;
  }

  for (const one of [voltage, gates, ionic]) {
    const scrub = (event) => to(one.place(event)[0] / answer.duration);
    one.canvas.addEventListener("pointerdown", (event) => { if (answer) { one.canvas.setPointerCapture(event.pointerId); scrub(event); } });
    one.canvas.addEventListener("pointermove", (event) => { if (one.canvas.hasPointerCapture(event.pointerId)) scrub(event); });
  }

  function to(part, stop = true) {
    if (stop) pause();
    moment = Math.max(0, Math.min(1, part));
    time.value = moment * 1000;
    if (!answer) return;
    repaint();
    lookStill();
  }
  const pause = () => { cancelAnimationFrame(playing); playing = null; play.textContent = "▶ play"; };
  function run() {
    if (playing !== null) { pause(); return; }
    const begun = performance.now() - (moment >= 0.999 ? 0 : moment) * PLAYED_MS;
    play.textContent = "⏸ pause";
    const frame = (now) => {
      to((now - begun) / PLAYED_MS, false);
      if (moment >= 1) pause();
      else playing = requestAnimationFrame(frame);
    };
    playing = requestAnimationFrame(frame);
  }

  // ---------------------------------------------------------------- controls

  const store = settled(250, () => {
    if (!holder.isConnected) return;  // the address is another page's by now
    keep({ cell, current: kind, seed: seed || "", ms: duration === 200 ? "" : duration, set: JSON.stringify(set), drawn: kind === "drawn" ? encoded(drawn, cell) : "" });
    fill(same, copyable("the same in a terminal", command()), (kind === "drawn" || kind === "sine") && button("save this current as current.csv", save, { class: "small" }));
  });
  const changed = () => { look(); store(); };
  const slow = settled(400, () => rates.look(parameters()));

  const knob = (name, act) => {
    const [label, low, high, step, otherwise] = all()[name];
    const own = slider({ label, name, low, high, step, value: value(name), show: (x) => String(Number(x.toFixed(3))).replace("-", "−"), change: (x) => { turned(name, x); act(); } });
    own.input.addEventListener("dblclick", () => { turned(name, otherwise); own.set(otherwise); act(); });
    return own;
  };

  function offer() {
    const about = CELLS[cell];
    const focused = controls.contains(document.activeElement) ? document.activeElement.name : null;
    const whole = () => { rates.stop(); changed(); slow(); };
    const used = CURRENT[kind];
    fill(controls,
      choice({ label: "neuron", name: "cell", value: cell, options: Object.entries(CELLS).map(([key, one]) => [key, one.title]), change: (x) => { cell = x; drawn = decoded("", cell); if (kind === "drawn") kind = "step"; offer(); changed(); slow(); } }),
      choice({ label: "current", name: "kind", value: kind, options: KINDS, change: (x) => { if (x === "drawn") byHand(); else kind = x; offer(); changed(); } }),
      used.map((name) => knob(name, changed)),
      h("div", { class: "row", style: { "margin-bottom": ".5rem" } }, button("other noise", () => { seed += 1; changed(); }, { class: "small" }), kind === "drawn" && button("wipe the drawing", () => { drawn.fill(0); changed(); }, { class: "small" })),
      choice({ label: "time, ms", name: "ms", value: String(duration), options: ["50", "100", "200", "500"], change: (x) => { duration = Number(x); changed(); } }),
      Object.keys(about.neuron).map((name) => knob(name, whole)),
      Object.keys(about.more).length ? h("details", h("summary", "reversal potentials, temperature"), Object.keys(about.more).map((name) => knob(name, whole))) : null,
      button("all as it was", () => { set[cell] = {}; kind = "step"; seed = 0; offer(); changed(); slow(); }, { class: "small" }));
    if (focused) controls.querySelector(`[name="${focused}"]`)?.focus();
    fill(tries, TRIES[cell].map(([text, chosen, values]) => button(text, () => { set[cell] = { ...values }; kind = chosen; seed = 0; offer(); changed(); slow(); if (!still()) { moment = 0; pause(); run(); } }, { class: "small" })));
    const leaky = cell === "lif";
    for (const one of [gates, ionic]) one.canvas.parentElement.hidden = leaky;
    fill(planeSaid, leaky ? "The state moves along the broken line, which the input lifts and lowers: to the right while it is above the dotted one. It stands still where they meet; beyond v = 1 it cannot get, for there it fires." : "Each loop is a spike, anticlockwise. Broken: where V would stand still under the current of this moment; dotted: where n would. Where they meet, the neuron could rest.");
    handSaid.textContent = `injected ${leaky ? "input" : "current"}, ${about.unit}`;
  }

  function command() {
    const flag = (name, x) => ` --${name.replaceAll("_", "-")} ${x}`;
    const own = Object.entries({ ...CELLS[cell].neuron, ...CELLS[cell].more }).filter(([name, row]) => value(name) !== row[4]).map(([name]) => flag(name, value(name))).join("");
    const begin = `engram run ${cell} --steps ${duration}${cell === "lif" ? " --neurons 1" : ""}${own}`;
    if (kind === "drawn" || kind === "sine") return `${begin} --data current.csv`;
    const { onset_ms, offset_ms, width_ms, period_ms } = injected();
    const times = kind === "noise" ? "" : flag("onset_ms", onset_ms) + flag("offset_ms", kind === "pulses" ? onset_ms + period_ms + width_ms : offset_ms) + (kind === "pulses" ? flag("period_ms", period_ms) + flag("width_ms", width_ms) : "");
    return `${begin} --stimulus ${kind === "noise" ? "constant" : kind}${flag("amplitude", value("amplitude"))}${times}${flag("noise", value("noise"))}`;
  }

  function save() {  // a height for each time step, as the command reads it
    const steps = Math.round(answer.duration / CELLS[answer.cell].step);
    const heights = Array.from({ length: steps }, (_, i) => answer.J[Math.floor(i / steps * answer.J.length)].toFixed(4));
    const address = URL.createObjectURL(new Blob([heights.join("\n"), "\n"], { type: "text/csv" }));
    h("a", { href: address, download: "current.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }

  const [controls, tries, same] = [h("div", { class: "panel" }), h("div", { class: "row", style: { "margin-bottom": ".8rem" } }), h("div")];
  const said = h("p", { role: "status" });
  const [reading, planeSaid] = [h("div", { class: "mono small", id: "reading" }), h("figcaption")];
  const [handSaid, penSaid] = [h("span"), h("span", { "aria-live": "polite" })];
  const time = h("input", { type: "range", min: 0, max: 1000, value: 350, "aria-label": "moment", style: { flex: 1, "min-width": "8rem" }, oninput: () => to(Number(time.value) / 1000) });
  const play = button("▶ play", run);
  fill(holder, tries, h("div", { class: "two" }, controls, h("div", said,
    h("div", voltage.canvas),
    h("p", { class: "small soft row" }, handSaid, h("b", "draw here, or arrow keys"), penSaid), h("div", hand.canvas),
    h("div", gates.canvas, legend(Object.values(GATES).map((text, i) => [text, `var(--${["warm", "accent", "good"][i]})`]))),
    h("div", ionic.canvas, legend(Object.values(IONIC).map((text, i) => [text, `var(--${["warm", "accent", "good"][i]})`]))))),
  h("div", { class: "halves" }, h("figure", h("h2", "Phase plane"), planeSaid, plane.canvas), h("figure", h("h2", "Rate by current"), rates.elements)),
  h("div", { class: "panel", style: { position: "sticky", bottom: 0, padding: ".4rem .8rem" } }, h("div", { class: "row" }, play, time), reading), same);
  offer();
  look().then(() => { if (!still() && answer && holder.isConnected) { moment = 0; run(); } });
  store();
  rates.look(parameters());
  return () => { pause(); rates.stop(); [voltage, gates, ionic, hand, plane].forEach((one) => one.stop()); };
}

// From the least to the most of some rows, and a little more.
function spread(rows, least = 0) {
  let [low, high] = [Infinity, -Infinity];
  for (const row of rows) for (const x of row) [low, high] = [Math.min(low, x), Math.max(high, x)];
  const more = Math.max(least, (high - low) * 0.06);
  return [low - more, high + more];
}

// Population: what neurons hold between them, and what they do when they hear themselves.

import { COLOURS, draw } from "../charts.js";
import { button, choice, copyable, fill, h, settled, slider, still } from "../dom.js";
import { keep, kept } from "../lab.js";
import { ask, channel, unpacked } from "../link.js";
import { css, dot, legend, line, paced, segment, sheet } from "../traces.js";

export function mount(holder) {
  const [above, below] = [h("div"), h("div")];
  fill(holder, above, below);
  const leaving = [holding(above), running(below)];
  return () => leaving.forEach((leave) => leave());
}

const plain = (x) => String(Number(x.toPrecision(3))).replace("-", "−");

// Sliders whose values stay in the address, but for a push: [label, low, high, step, value]
function knobs(holder, table, changed) {
  const values = Object.fromEntries(Object.entries(table).map(([name, row]) => [name, Number(kept(name, row[4]))]));
  const made = Object.fromEntries(Object.entries(table).map(([name, [label, low, high, step]]) => [name, slider({
    label, name, low, high, step, value: values[name], show: plain, change: (x) => { values[name] = x; store(); changed(name); } })]));
  const store = settled(250, () => holder.isConnected && keep(Object.fromEntries(Object.entries(table).map(([name, row]) => [name, values[name] === row[4] || name === "u" ? "" : values[name]]))));
  return { values, made };
}

// ---------------------------------------------------------------- what they hold

const CODE = { n: ["neurons", 2, 500, 1, 50], seed: ["seed of the neurons", 0, 50, 1, 0], slowest: ["slowest peak, Hz", 20, 400, 5, 200], fastest: ["fastest peak, Hz", 20, 400, 5, 400], noise: ["noise on the rates", 0, 0.5, 0.01, 0.1], window: ["spikes counted for, ms", 5, 100, 5, 50] };

function holding(holder) {
  const sizes = channel();
  const [tuning, decoded, falls] = [h("div"), h("div"), h("div")];
  const [said, fallSaid] = [h("p", { role: "status", id: "held" }), h("figcaption", { id: "falls" })];
  const { values, made } = knobs(holder, CODE, (name) => {
    if (name === "slowest" && values.fastest < values.slowest) { values.fastest = values.slowest; made.fastest.set(values.fastest); }
    if (name === "fastest" && values.slowest > values.fastest) { values.slowest = values.fastest; made.slowest.set(values.slowest); }
    look();
    if (name !== "noise" && name !== "window" && name !== "n") slowly();
    else if (name === "n") drawFalls();
  });
  const population = () => ({ neurons: values.n, seed: values.seed, slowest_hz: values.slowest, fastest_hz: values.fastest });
  let fallen = { neurons: [], clean: [], noisy: [] };

  const look = paced(async () => {
    const found = {};
    try {
      await ask("population", { population: population(), noise: values.noise, window_ms: values.window }, (part) => {
        Object.assign(found, part);
        if (part.tuning) drawTuning(found);
        else drawDecoded(found);
      });
      said.textContent = `Root mean square error of ${values.n} neurons: ${plain(found.rates.rmse)} from noisy rates, ${plain(found.spikes.rmse)} from spikes counted for ${values.window} ms.`;
    } catch (error) {
      said.textContent = error.message;
    }
  });

  function drawTuning({ x, tuning: curves }) {
    const { shape, values: rates } = unpacked(curves);
    const traces = Array.from({ length: shape[0] }, (_, i) => ({ x, y: Array.from(rates.subarray(i * shape[1], (i + 1) * shape[1])), mode: "lines", line: { width: 1, color: COLOURS[i % COLOURS.length] }, name: `neuron ${i}`, showlegend: false }));
    draw(tuning, traces, { xaxis: { title: { text: "value" } }, yaxis: { title: { text: "rate, Hz" }, rangemode: "tozero" }, height: 320 });
  }

  function drawDecoded({ rates, spikes }) {
    draw(decoded, [
      { x: [-1, 1], y: [-1, 1], mode: "lines", name: "exact", line: { color: COLOURS[6], dash: "dot" } },
      ...both(rates, "noisy rates", { mode: "lines", line: { color: COLOURS[0], width: 1.5 } }),
      ...both(spikes, "spikes", { mode: "markers", marker: { color: COLOURS[1], size: 5 } }),
    ], {
      xaxis: { title: { text: "value" }, anchor: "y2" }, yaxis: { title: { text: "decoded" }, range: [-1.3, 1.3], domain: [0.42, 1] },
      yaxis2: { title: { text: "off by" }, domain: [0, 0.32], gridcolor: "rgba(128,128,128,0.2)", zerolinecolor: COLOURS[6] }, height: 320,
    });
  }
  const both = (found, name, how) => (found ? [{ x: found.x, y: found.decoded, name, ...how }, { x: found.x, y: found.decoded.map((y, i) => y - found.x[i]), name: `error of ${name}`, yaxis: "y2", showlegend: false, ...how }] : []);

  async function fall() {
    fallen = { neurons: [], clean: [], noisy: [] };
    fallSaid.textContent = "measuring …";
    try {
      const { clean_power, noisy_power } = await sizes("population.errors", { population: population() }, (part) => {
        for (const name of ["neurons", "clean", "noisy"]) fallen[name].push(part[name]);
        drawFalls();
      });
      fallSaid.textContent = `The error falls as N to the power ${clean_power.toFixed(2)} without noise and ${noisy_power.toFixed(2)} with noise of 10 %; chance that averages out would give −0.5.`.replaceAll("-", "−");
    } catch (error) {
      fallSaid.textContent = error.message;
    }
  }

  function drawFalls() {
    const here = { type: "line", x0: values.n, x1: values.n, yref: "paper", y0: 0, y1: 1, line: { dash: "dot", color: COLOURS[6] } };
    draw(falls, [
      { x: [...fallen.neurons], y: [...fallen.clean], mode: "lines+markers", name: "rates", line: { color: COLOURS[0] } },
      { x: [...fallen.neurons], y: [...fallen.noisy], mode: "lines+markers", name: "noisy rates", line: { color: COLOURS[1] } },
    ], { xaxis: { title: { text: "neurons" }, type: "log", tickvals: [10, 20, 50, 100, 200, 500] }, yaxis: { title: { text: "error" }, type: "log", exponentformat: "power", dtick: 1 }, shapes: [here], height: 320 });
  }
  const slowly = settled(500, fall);

  const columns = { display: "grid", gap: "1.2rem", "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 22rem), 1fr))", "align-items": "end" };
  fill(holder, h("h2", "What they hold"), h("div", { class: "panel", style: { ...columns, "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 10.5rem), 1fr))", "margin-bottom": ".8rem" } }, Object.values(made)), said,
    h("div", { style: columns },
      h("figure", h("figcaption", "Each neuron prefers one side, begins somewhere else and rises at its own pace. None of them says the value."), tuning),
      h("figure", h("figcaption", "A weighted sum of all rates does; below, how far it is off. Fewer neurons, more noise or a shorter count, and it trembles."), decoded),
      h("figure", fallSaid, falls)));
  look();
  fall();
  return () => sizes.stop();
}

// ---------------------------------------------------------------- what they do

const [SHOWN_S, RASTER_S, PART_MS, RASTER, PUSH] = [6, 1, 40, 40, 1];
const RUN = { many: ["neurons", 20, 500, 10, 300], tau: ["synapse τ, ms", 10, 300, 5, 100], hz: ["turns per second", -3, 3, 0.1, 1], u: ["input u", -2, 2, 0.1, 0], pace: ["pace, seconds per second", 0.1, 1, 0.1, 1] };
const NAMES = { integrator: ["x"], oscillator: ["x₁", "x₂"] };
const SAID = {
  integrator: "A population that hears itself adds up its input: dx/dt = u. Push it, let go, and it holds, in neurons that each forget within 20 ms. Beyond ±1 it cannot hold any more; few neurons drift.",
  oscillator: "A population that hears itself turned a little goes round. Kick it, drag the point in the plane, or turn its speed while it runs.",
};

function running(holder) {
  let system = kept("system", "integrator");
  if (!NAMES[system]) system = "integrator";
  let [state, past] = ["", null];
  let [push, kick, target] = [0, 0, null];
  let [turn, busy, live] = [0, null, false];  // which life it is, which one something is under way of, whether time is to pass
  const { values, made } = knobs(holder, RUN, (name) => { if (name === "many") anew(); showCommand(); });
  const [said, caption, same, controls] = [h("p", { role: "status", id: "flowing" }), h("p", { class: "soft" }), h("div"), h("div", { class: "panel" })];

  const empty = () => ({ t: [], seen: NAMES[system].map(() => []), idealT: [0], ideal: [0], u: [], spikeT: [], spikeOf: [] });
  const asked = (input) => ({ system, state, input, model: { neurons: values.many, tau_ms: values.tau, frequency_hz: system === "oscillator" ? values.hz : 1 } });

  // Let an input pass: rows of one or two numbers, a millisecond each.
  async function pass(rows) {
    const mine = turn;
    const end = await ask("population.run", asked(rows.flat()), (part) => { if (mine === turn) take(part); });
    if (mine === turn) state = end.state;
  }

  function take(part) {
    const [seen, u] = [unpacked(part.seen), unpacked(part.u)];
    part.t.forEach((ms, i) => {
      past.t.push(ms / 1000);
      past.seen.forEach((row, k) => row.push(seen.at(i, k)));
      past.u.push(u.at(i, 0));
    });
    past.idealT.push(part.t.at(-1) / 1000);
    past.ideal.push(past.ideal.at(-1) + part.added[0]);
    for (const ms of part.spike_ms) past.spikeT.push(ms / 1000);
    past.spikeOf.push(...part.spike_of);
    forget(past.t.at(-1));
    paint();
  }

  function forget(now) {
    const cut = (before, times, ...rows) => { const first = times.findIndex((t) => t >= before); if (first > 0) [times, ...rows].forEach((one) => one.splice(0, first)); };
    cut(now - SHOWN_S, past.t, past.u, ...past.seen);
    cut(now - SHOWN_S - 0.1, past.idealT, past.ideal);
    const late = past.spikeT.flatMap((t, i) => (t >= now - RASTER_S ? [i] : []));
    [past.spikeT, past.spikeOf] = [late.map((i) => past.spikeT[i]), late.map((i) => past.spikeOf[i])];
  }

  function row() {
    if (system === "integrator") return [values.u + push * PUSH];
    if (kick > 0) { kick -= 1; return [10, 0]; }
    const at = past.seen.map((one) => one.at(-1) ?? 0);
    return target ? target.map((x, k) => 8 * (x - at[k])) : [0, 0];
  }

  async function go() {
    live = true;
    label();
    if (busy === turn) return;  // what is under way goes on
    const mine = (busy = turn);
    let due = performance.now();
    while (mine === turn && live) {
      const steps = Math.max(4, Math.round(PART_MS * values.pace));
      try {
        if (!document.hidden) await pass(Array.from({ length: steps }, row));
      } catch (error) {
        if (mine === turn) { pause(); said.textContent = error.message; }
      }
      due = Math.max(due + steps / values.pace, performance.now() - 100);
      await new Promise((resolve) => { setTimeout(resolve, Math.max(document.hidden ? 300 : 0, due - performance.now())); });
    }
    if (mine === turn) busy = null;
  }
  const pause = () => { live = false; label(); };
  const label = () => { start.textContent = live ? "⏸ pause" : "▶ start"; };

  // Something to see at once: pushes up and down for an integrator, a kick for an oscillator.
  async function anew() {
    turn += 1;
    [state, past, live] = ["", empty(), !still()];
    label();
    const mine = (busy = turn);
    const pushes = (ms) => (ms >= 300 && ms < 900 ? 1.2 : ms >= 1700 && ms < 2500 ? -1.5 : 0);
    try {
      await pass(Array.from({ length: 3500 }, (_, ms) => (system === "integrator" ? [pushes(ms)] : [ms < 100 ? 10 : 0, 0])));
    } catch (error) {
      if (mine === turn) { pause(); said.textContent = error.message; }
    }
    if (mine !== turn) return;
    busy = null;
    if (live) go();
  }

  // ---------------------------------------------------------------- pictures

  const colours = () => [css("--accent"), css("--warm")];
  const strip = sheet({ label: "decoded value over time; arrow keys push", height: 240, xAxis: "→ s", yAxis: "value, read off the spikes", attributes: { tabindex: 0, role: "application", onkeydown: typed, onkeyup: () => { push = 0; }, onblur: () => { push = 0; }, style: { width: "100%", height: "240px", display: "block" } }, paint: (pen, X, Y) => {
    pen.strokeStyle = css("--soft");
    pen.setLineDash([2, 4]);
    [-1, 1].forEach((y) => segment(pen, X(strip.x[0]), Y(y), X(strip.x[1]), Y(y)));
    pen.setLineDash([]);
    if (system === "integrator") line(pen, X, Y, past.idealT, past.ideal, { colour: css("--good"), dash: [5, 4], width: 2 });
    past.seen.forEach((one, k) => line(pen, X, Y, past.t, one, { colour: colours()[k], width: 1.6 }));
  } });
  const pushed = sheet({ label: "input over time", height: 80, xAxis: false, yAxis: "input", paint: (pen, X, Y) => line(pen, X, Y, past.t, past.u, { colour: css("--soft") }) });
  const raster = sheet({ label: "spikes of some neurons", height: 210, xAxis: "→ s", yAxis: `spikes of ${RASTER} neurons in the last second`, paint: (pen, X, Y) => {
    pen.fillStyle = css("--ink");
    const high = Math.max(2, Y(0) - Y(1) - 1);
    past.spikeT.forEach((t, i) => pen.fillRect(X(t), Y(past.spikeOf[i]) - high / 2, 1.2, high));
  } });
  const plane = sheet({ label: "plane of the two values; drag to pull", height: 300, square: true, xAxis: "→ x₁", yAxis: "x₂", attributes: { class: "pixels", style: { width: "100%", "max-width": "300px", height: "300px", display: "block" } }, paint: (pen, X, Y) => {
    const [one, two] = past.seen;
    if (!two?.length) return;
    const circle = Array.from({ length: 73 }, (_, i) => i / 36 * Math.PI);
    line(pen, X, Y, circle.map(Math.cos), circle.map(Math.sin), { colour: css("--soft"), dash: [2, 4] });
    line(pen, X, Y, one, two, { colour: css("--accent"), from: Math.max(0, one.length - 1500) });
    dot(pen, X(one.at(-1)), Y(two.at(-1)), css("--ink"));
    if (target) dot(pen, X(target[0]), Y(target[1]), css("--warm"), 4);
  } });
  [plane.x, plane.y, strip.y, raster.y] = [[-1.5, 1.5], [-1.5, 1.5], [-1.5, 1.5], [-0.7, RASTER - 0.3]];
  plane.canvas.addEventListener("pointerdown", (event) => { plane.canvas.setPointerCapture(event.pointerId); target = plane.place(event); if (!live) go(); });
  plane.canvas.addEventListener("pointermove", (event) => { if (target) target = plane.place(event); });
  for (const end of ["pointerup", "pointercancel"]) plane.canvas.addEventListener(end, () => { target = null; });

  function paint() {
    const now = past.t.at(-1) ?? 0;
    for (const [one, seconds] of [[strip, SHOWN_S], [pushed, SHOWN_S], [raster, RASTER_S]]) { one.x = [Math.max(0, now - seconds), Math.max(seconds, now)]; one.again(); }
    if (system === "oscillator") plane.again();
    const fixed = (x) => x.toFixed(2).replace("-", "−");
    const [one, two] = past.seen.map((row) => row.at(-1) ?? 0);
    said.textContent = system === "integrator" ? `x = ${fixed(mean(past.seen[0], 50))}; the sum of all input is ${fixed(past.ideal.at(-1))}.`
      : `radius ${fixed(Math.hypot(one, two))}, ${fixed(turns())} turns per second; ${fixed(values.hz)} were asked for.`;
  }
  const mean = (row, count) => row.slice(-count).reduce((sum, x) => sum + x, 0) / Math.max(1, Math.min(count, row.length));

  function turns() {  // of the last second
    const [one, two] = past.seen.map((row) => row.slice(-1000));
    let angle = 0;
    for (let i = 1; i < one.length; i += 1) angle += Math.atan2(one[i - 1] * two[i] - two[i - 1] * one[i], one[i - 1] * one[i] + two[i - 1] * two[i]);
    return angle / (2 * Math.PI) / Math.max(0.001, (one.length - 1) / 1000);
  }

  // ---------------------------------------------------------------- hands

  function typed(event) {
    const way = { ArrowUp: 1, ArrowRight: 1, ArrowDown: -1, ArrowLeft: -1 }[event.key];
    if (!way) return;
    event.preventDefault();
    if (system === "oscillator") { if (!event.repeat) kick = 100; } else push = way;
    if (!live) go();
  }

  const held = (text, named, way) => {
    const on = () => { push = way; if (!live) go(); };
    const off = () => { push = 0; };
    return h("button", { type: "button", "aria-label": named, onpointerdown: on, onpointerup: off, onpointerleave: off, onpointercancel: off, onkeydown: (event) => { if (event.key === " " || event.key === "Enter") on(); }, onkeyup: off, onblur: off }, text);
  };
  const start = button("▶ start", () => (live ? pause() : go()), { class: "main" });

  function offer() {
    const [turning, gap] = [system === "oscillator", { "margin-bottom": ".6rem" }];
    const focused = controls.contains(document.activeElement) ? document.activeElement.name : null;
    fill(controls,
      choice({ label: "what it is to do", name: "system", value: system, options: [["integrator", "integrate: remember what was added"], ["oscillator", "oscillate: go round"]], change: (x) => { system = x; keep({ system }); offer(); anew(); } }),
      h("div", { class: "row", style: gap }, start, button("begin anew", anew)),
      turning ? h("div", { class: "row", style: gap }, button("kick", () => { kick = 100; if (!live) go(); })) : h("div", { class: "row", style: gap }, held("▼ push", "hold to push down", -1), held("▲ push", "hold to push up", 1), h("span", { class: "soft small" }, "hold")),
      turning ? made.hz : made.u, made.many, made.tau, made.pace);
    if (focused) controls.querySelector(`[name="${focused}"]`)?.focus();
    caption.textContent = SAID[system];
    fill(key, legend(turning ? [["x₁", "var(--accent)"], ["x₂", "var(--warm)"]] : [["what the spikes say", "var(--accent)"], ["the exact integral", "var(--good)"]]));
    plane.canvas.parentElement.hidden = !turning;
    pushed.y = turning ? [-11, 11] : [-3.2, 3.2];
    showCommand();
  }
  const showCommand = settled(250, () => fill(same, copyable("the same in a terminal", `engram run ${system} --neurons ${values.many} --tau-ms ${values.tau}${system === "oscillator" ? ` --frequency-hz ${values.hz}` : ""}`)));

  const key = h("div");
  past = empty();
  fill(holder, h("h2", "What they do"), caption, h("div", { class: "two" }, h("div", controls, h("div", { style: { "margin-top": ".8rem" } }, plane.canvas)), h("div", said, key, strip.canvas, pushed.canvas, raster.canvas)), same);
  offer();
  anew();
  return () => { turn += 1; [strip, pushed, raster, plane].forEach((one) => one.stop()); };
}

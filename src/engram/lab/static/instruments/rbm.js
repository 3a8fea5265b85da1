// Boltzmann machine: draw a picture, corrupt it, and watch what Gibbs sampling makes of it, round after round.

import { COLOURS, draw } from "../charts.js";
import { button, choice, copyable, fill, h, mathml, settled, slider, still } from "../dom.js";
import { pixelCanvas, tile } from "../drawing.js";
import { keep, kept } from "../lab.js";
import { ask, channel, unpacked } from "../link.js";

const HALVES = [["upper", "the upper half"], ["lower", "the lower half"], ["left", "the left half"], ["right", "the right half"]];
const [FRAME, DREAM, KEPT] = [45, 400, 1200];  // milliseconds of a frame, rounds of a dream, frames that can be gone back to
const KEPT_PIXELS = 1024;  // of a drawing, in the address
const SIGNED = ["#d55e00", "--card", "#0072b2"];
const COLUMNS = { display: "grid", gap: "1.2rem 1.6rem", "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 20rem), 1fr))", "align-items": "start" };

const digits = (values) => Array.from(values, (value) => Math.round(15 * value).toString(16)).join("");
const pixels = (text) => [...text].map((digit) => parseInt(digit, 16) / 15);

export async function mount(holder, { run, step }) {
  const about = await ask("rbm", { run, step });
  const [channels, height, width] = about.shape;
  const set = {
    item: Number(kept("item", "0")), seed: Number(kept("seed", "0")), hold: kept("hold", "upper"), heat: Number(kept("heat", "1")),
    pen: kept("pen", channels === 3 ? "colour" : "grey"), view: kept("view", "probability"), part: 0.2, half: "lower",
  };
  const size = { width, height };
  const common = () => ({ run, step, temperature: set.heat * about.temperature, seed: set.seed });
  const wrong = h("p", { role: "alert", hidden: true });
  const failed = (error) => Object.assign(wrong, { hidden: false, textContent: error.message });
  const inside = insideOf({ ...size, about, model: { run, step }, common, failed });
  const dream = dreamOf({ ...size, channels, set, common, failed, about, given: () => board.values, show: inside.show });
  const place = h("div");
  const named = h("span", { class: "soft" });
  let board = null;

  const setBoard = (values) => {
    board?.stop();
    board = pixelCanvas({ ...size, values, label: "drawing", mode: set.pen, size: 280, change: (_, ended) => { named.textContent = "your drawing"; changed(ended); } });
    fill(place, board.element);
  };
  const number = h("input", { type: "number", name: "item", min: 0, max: about.test - 1, value: set.item, style: { width: "6rem" }, onchange: () => take(Number(number.value)) });
  const seed = h("input", { type: "number", name: "seed", min: 0, max: 2147483647, value: set.seed, style: { width: "6rem" }, onchange: () => { set.seed = Math.max(0, Math.floor(Number(seed.value) || 0)); remember(); dream.restart(); } });

  fill(holder, wrong, h("div", { style: COLUMNS },
    h("section", h("h3", "What is given"), place,
      h("div", { class: "row" }, h("label", "test picture ", number), button("◀", () => take(set.item - 1), { class: "small", "aria-label": "test picture before" }), button("▶", () => take(set.item + 1), { class: "small", "aria-label": "next test picture" }), named),
      slider({ label: "part of the pixels", name: "part", low: 0, high: 1, step: 0.05, value: set.part, show: (x) => `${Math.round(100 * x)} %`, change: (x) => { set.part = x; } }),
      h("div", { class: "row" }, button("make them noise", () => corrupt("noise")), button("cover", () => corrupt(set.half)),
        h("select", { "aria-label": "half to cover", onchange: ({ target }) => { set.half = target.value; } }, HALVES.map(([key, text]) => h("option", { value: key, selected: key === set.half }, text)))),
      h("div", { class: "row", style: { "margin-top": ".5rem" } }, channels === 1 && choice({ label: "pen", name: "pen", value: set.pen, options: [["grey", "grey"], ["binary", "black and white"]], change: (pen) => { set.pen = pen; setBoard([...board.values]); remember(); } }), h("label", { class: "small" }, "seed ", seed)),
      h("p", { class: "soft small" }, "The machine knows only black and white: a grey pixel is on as often as it is bright.")),
    dream.element(() => remember(), () => seen()), inside.element),
  h("div", { class: "scroll" }, about.equations.map(({ text, mathml: marked }) => h("p", marked ? mathml(marked) : h("code", text)))),
  copyable("dreams and filled halves from the command line", `engram sample runs/${run}\nengram sample runs/${run} --show filled`));

  async function take(item) {
    try {
      const found = await ask("rbm.picture", { run, step, item: Math.min(about.test - 1, Math.max(0, Math.floor(item) || 0)) });
      set.item = number.value = Math.min(about.test - 1, Math.max(0, Math.floor(item) || 0));
      named.textContent = found.label ? `«${found.label}»` : "";
      setBoard(unpacked(found.picture).values);
      changed(true);
    } catch (error) { failed(error); }
  }

  async function corrupt(how) {
    try {
      const { picture } = await ask("rbm.corrupt", { ...common(), picture: [...board.values], how, part: set.part });
      if (how === "noise") seed.value = set.seed += 1;
      board.set(unpacked(picture).values);
      changed(true);
    } catch (error) { failed(error); }
  }

  const seen = settled(60, async () => dream.compare(await inside.look([...board.values])));
  function changed(ended) {
    wrong.hidden = true;
    dream.forget();
    seen();
    if (!ended) return;
    remember();
    dream.restart();
  }

  function remember() {
    keep({ item: set.item, seed: set.seed, hold: set.hold, heat: set.heat, pen: set.pen, view: set.view, drawing: board.values.length <= KEPT_PIXELS ? digits(board.values) : "" });
  }

  const drawn = kept("drawing");
  if (drawn.length === channels * height * width) { setBoard(pixels(drawn)); changed(true); } else await take(set.item);
  return () => { board?.stop(); dream.stop(); inside.stop(); };
}

// ---------------------------------------------------------------------- the dream: frames as they come, and back again

function dreamOf({ width, height, channels, set, common, failed, about, given, show: showHidden }) {
  const latest = channel();
  const picture = tile({ width, height, values: new Float32Array(channels * width * height), label: "what it dreams", size: 280 });
  picture.classList.add("pixels");
  const said = h("p", { role: "status", style: { "margin-top": ".5rem" } });
  const curve = h("div");
  let frames = [];
  let coming = [];
  let at = -1;
  let wanted = 0;  // rounds that are still to come
  let timer = null;
  let usual = null;  // free energies of test pictures: low, middle, high

  const scrub = slider({ label: "frame", name: "frame", low: 0, high: 0, step: 1, value: 0, change: (x) => { pause(); at = x; show(true); } });
  const now = () => frames[at];
  const rounds = () => now()?.round ?? 0;

  // A dream goes on from the frame that is shown; frames after it are forgotten.
  async function go(count) {
    pause();
    frames = frames.slice(0, at + 1);
    wanted = rounds() + count;
    timer = setInterval(next, FRAME);
    halt.disabled = false;
    const from = now();
    try {
      await latest("rbm.dream", { ...common(), hold: set.hold, rounds: count, begun: rounds(), picture: from ? [...from.visible] : [...given()] }, (part) => coming.push(opened(part)));
    } catch (error) { pause(); failed(error); }
  }

  const opened = (part) => ({ ...part, probability: unpacked(part.probability).values, visible: unpacked(part.visible).values, hidden: unpacked(part.hidden).values });

  function next() {
    if (!coming.length) return;
    const some = still() ? coming.splice(0) : coming.splice(0, 1);
    frames.push(...some);
    if (frames.length > KEPT) frames.splice(0, frames.length - KEPT);
    at = frames.length - 1;
    const ended = rounds() >= wanted;
    if (ended) pause();
    show(ended || at % 5 === 0);
  }

  function pause() {
    latest.stop();
    clearInterval(timer);
    [coming, timer] = [[], null];
    halt.disabled = true;
  }

  function show(curves) {
    const frame = now();
    halt.disabled = timer === null;
    picture.set(frame ? frame[set.view] : given());
    Object.assign(scrub.input, { max: Math.max(0, frames.length - 1), disabled: frames.length < 2 });
    scrub.set(Math.max(0, at));
    if (frame) showHidden(frame.hidden);
    const free = frame?.free[frame.free.length - 1];
    said.textContent = frame ? `round ${frame.round}: energy ${frame.energy[frame.energy.length - 1].toFixed(1)}, free energy ${free.toFixed(1)}` : "No round yet: this is what was given.";
    if (curves) plot();
  }

  function plot() {
    const last = frames[frames.length - 1]?.round ?? 0;
    const energy = frames.flatMap((frame) => frame.energy);
    const free = frames.flatMap((frame) => frame.free);
    const x = energy.map((_, i) => last - energy.length + 1 + i);
    const line = (y, name, colour) => ({ x, y, name, mode: x.length < 30 ? "lines+markers" : "lines", line: { color: colour, width: 1.5 }, marker: { size: 4 } });
    draw(curve, [line(energy, "energy E(v, h)", COLOURS[0]), line(free, "free energy F(v)", COLOURS[1]),
      { x: [rounds()], y: [now()?.free[now().free.length - 1] ?? null], mode: "markers", marker: { size: 10, color: COLOURS[1] }, showlegend: false, hoverinfo: "skip" }],
    { height: 230, margin: { l: 56, r: 10, t: 30, b: 38 }, xaxis: { title: { text: "round" } }, shapes: usual ? [band()] : [] });
  }

  const band = () => ({ type: "rect", xref: "paper", x0: 0, x1: 1, y0: usual[0], y1: usual[2], fillcolor: COLOURS[1], opacity: 0.15, line: { width: 0 }, layer: "below" });

  function forget() {
    pause();
    [frames, at] = [[], -1];
    show(true);
  }

  const restart = () => { forget(); go(DREAM); };
  const halt = button("stop", () => { pause(); show(true); }, { disabled: true });
  const heated = settled(150, () => { if (timer !== null) go(Math.max(1, wanted - rounds())); });
  return {
    forget, restart, stop: pause, compare: (found) => { usual = found ?? usual; plot(); },
    element: (remember, look) => h("section", h("h3", "What it dreams"), picture,
      h("div", { class: "row", style: { "margin-top": ".5rem" } }, button("one step", () => go(1), { class: "main" }), button("20 steps", () => go(20)), button(`dream: ${DREAM}`, () => go(DREAM)), halt, button("from the drawing again", forget, { class: "small" })),
      said, scrub,
      slider({ label: "temperature", name: "heat", low: 0.2, high: 3, step: 0.05, value: set.heat, show: (x) => `T = ${(x * about.temperature).toFixed(2)}`, change: (x) => { set.heat = x; remember(); look(); heated(); } }),
      h("div", { class: "row" },
        choice({ label: "hold, and fill in the rest", name: "hold", value: set.hold, options: [["nothing", "nothing: dream freely"], ...HALVES], change: (hold) => { set.hold = hold; remember(); restart(); } }),
        choice({ label: "show", name: "view", value: set.view, options: [["probability", "probabilities"], ["visible", "what was drawn from them"]], change: (view) => { set.view = view; remember(); show(false); } })),
      curve, h("p", { class: "soft small" }, "A round draws the hidden units from the picture, and the picture from them. Noise falls quickly to where pictures lie (the band: free energies of nine test pictures in ten), and then wanders there; heat lets it wander farther, cold lets it freeze.")),
  };
}

// ---------------------------------------------------------------------- hidden units, and what each looks for

function insideOf({ width, height, about, model, common, failed }) {
  const across = Math.ceil(Math.sqrt(about.hidden));
  const down = Math.ceil(about.hidden / across);
  const padded = (values) => Float32Array.from({ length: across * down }, (_, i) => values[i] ?? 0);
  const latest = { look: channel(), most: channel(), one: channel() };
  const map = tile({ width: across, height: down, values: padded([]), label: `${about.hidden} hidden units: bright ones are on`, size: 280 });
  map.classList.add("pixels");
  map.addEventListener("pointerdown", (event) => {
    const box = map.getBoundingClientRect();
    const unit = Math.floor(((event.clientY - box.top) / box.height) * down) * across + Math.floor(((event.clientX - box.left) / box.width) * across);
    choose(Math.min(about.hidden - 1, Math.max(0, unit)));
  });
  const number = h("input", { type: "number", name: "unit", min: 0, max: about.hidden - 1, value: 0, style: { width: "5.5rem" }, oninput: () => choose(Number(number.value)) });
  const most = h("div", { class: "row", style: { gap: ".4rem" } });
  const chosen = h("div");
  const back = tile({ width, height, values: new Float32Array(about.shape.reduce((a, b) => a * b, 1)), label: "what comes back of the drawing", size: 90 });
  const said = h("p", { class: "small" });

  const filter = (values, unit, size) => {
    const extent = values.reduce((most_, value) => Math.max(most_, Math.abs(value)), 1e-12);
    return tile({ width, height, values, label: `weights of hidden unit ${unit}`, size, range: [-extent, extent], tones: SIGNED });
  };
  async function filters(units, where) {
    const { filters: packed } = await where("rbm.filters", { ...model, units });
    const { values } = unpacked(packed);
    return units.map((unit, i) => [unit, values.slice((i * values.length) / units.length, ((i + 1) * values.length) / units.length)]);
  }

  async function choose(unit) {
    number.value = unit;
    try {
      const [[, values]] = await filters([Math.min(about.hidden - 1, Math.max(0, Math.floor(unit) || 0))], latest.one);
      fill(chosen, filter(values, unit, 120));
    } catch (error) { failed(error); }
  }

  async function look(picture) {
    try {
      const found = await latest.look("rbm.look", { ...common(), picture });
      map.set(padded(unpacked(found.hidden).values));
      back.set(unpacked(found.reconstruction).values);
      const [low, middle, high] = found.usual.map((x) => x.toFixed(0));
      said.textContent = `The free energy of the drawing is ${found.free_energy.toFixed(0)}; of nine test pictures in ten it is between ${low} and ${high}, in the middle ${middle}.`;
      const seen = await filters(found.most, latest.most);
      fill(most, seen.map(([unit, values]) => h("button", { type: "button", onclick: () => choose(unit), style: { padding: ".2rem", "line-height": 1, width: "4.3rem" }, "aria-label": `hidden unit ${unit}` }, filter(values, unit, 56), h("span", { class: "small", style: { display: "block" } }, unit))));
      return found.usual;
    } catch (error) { failed(error); }
    return null;
  }

  choose(0);
  return {
    look, show: (hidden) => map.set(padded(hidden)), stop: () => Object.values(latest).forEach((one) => one.stop()),
    element: h("section", h("h3", `Hidden units (${about.hidden})`), map,
      h("div", { class: "row", style: { "margin-top": ".5rem" } }, h("label", "unit ", number), chosen),
      h("h3", "What the drawing turns on"), h("p", { class: "soft small" }, "The hidden units that the drawing turns on more than test pictures do, with their weights: blue wants ink, orange wants none."), most,
      h("h3", "What comes back of it"), h("div", { class: "row" }, back), said),
  };
}

// Hopfield memory: a drawing is given to two networks that have stored the same patterns; both answer as one draws.

import { COLOURS, draw } from "../charts.js";
import { button, choice, copyable, fill, h, mathml, slider, still } from "../dom.js";
import { pixelCanvas, tile } from "../drawing.js";
import { keep, kept } from "../lab.js";
import { ask, channel, unpacked } from "../link.js";

const LIMIT = 0.138;
const SHOWN = 8;  // patterns of which the overlap or the attention is shown
const FIRST = { stored: "smile,moon,star,cup,key", pattern: "moon", part: 0.25 };
const INK = { range: [-1, 1], tones: ["--card", "--ink"] };
const HALVES = [["upper", "the upper half"], ["lower", "the lower half"], ["left", "the left half"], ["right", "the right half"]];
const COLUMNS = { display: "grid", gap: "1.2rem 1.6rem", "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 20rem), 1fr))", "align-items": "start" };

// Drawings travel as hexadecimal digits, a bit for each pixel.
const digits = (values) => Array.from({ length: values.length / 4 }, (_, i) => [8, 4, 2, 1].reduce((sum, bit, j) => sum + (values[4 * i + j] > 0 ? bit : 0), 0).toString(16)).join("");
const pixels = (text) => [...text].flatMap((digit) => [8, 4, 2, 1].map((bit) => (parseInt(digit, 16) & bit ? 1 : -1)));

export async function mount(holder) {
  const { side, patterns, equations } = await ask("hopfield.gallery");
  const from = (text) => text.split(",").filter(Boolean);
  const set = {
    stored: from(kept("stored", FIRST.stored)).filter((name) => name in patterns), own: from(kept("own")), drawing: kept("drawing"),
    rule: kept("rule", "hebb"), way: kept("way", "one"), seed: Number(kept("seed", "0")), beta: Number(kept("beta", "-5")), steps: Number(kept("steps", "1")),
  };
  let part = FIRST.part;
  let half = "lower";
  const board = pixelCanvas({ width: side, height: side, label: "drawing", mode: "binary", size: 260, ...INK, change: () => given() });
  const classic = classicNetwork(side, board, equations);
  const modern = modernNetwork(side, equations);
  const gallery = h("div", { class: "row", style: { gap: ".35rem" } });
  const load = h("div");
  const wrong = h("p", { role: "alert", hidden: true });
  const code = h("div");

  const seed = h("input", { type: "number", name: "seed", min: 0, max: 2147483647, value: set.seed, style: { width: "7rem" }, oninput: () => change({ seed: Math.max(0, Math.floor(Number(seed.value) || 0)) }) });
  const pattern = choice({ label: "take a pattern", name: "pattern", options: [["", "…"], ...Object.keys(patterns)], value: "", change: (name) => { if (name) take(patterns[name]); } });
  fill(holder,
    h("section", { class: "panel" }, h("h3", { style: { "margin-top": 0 } }, "What is stored"), gallery,
      h("div", { class: "row", style: { "margin-top": ".6rem" } },
        button("five icons", () => change({ stored: from(FIRST.stored), own: [] }), { class: "small" }),
        button("all icons", () => change({ stored: Object.keys(patterns).slice(0, 10) }), { class: "small" }),
        button("all", () => change({ stored: Object.keys(patterns) }), { class: "small" }), button("nothing", () => change({ stored: [], own: [] }), { class: "small" }), load)),
    wrong,
    h("div", { style: { ...COLUMNS, "margin-top": "1.2rem" } },
      h("section", h("h3", "What is given"), board.element, pattern,
        slider({ label: "part of the pixels", name: "part", low: 0, high: 0.5, step: 0.01, value: part, show: (x) => `${Math.round(100 * x)} %`, change: (x) => { part = x; } }),
        h("div", { class: "row" }, button("flip them", () => corrupt("flip")), button("cover", () => corrupt(half)),
          h("select", { "aria-label": "half to cover", onchange: ({ target }) => { half = target.value; } }, HALVES.map(([key, text]) => h("option", { value: key, selected: key === half }, text)))),
        h("div", { class: "row", style: { "margin-top": ".5rem" } }, button("store this drawing", () => change({ own: [...set.own, digits(board.values)] })), h("label", { class: "small" }, "seed ", seed)),
        h("p", { class: "soft small" }, "Draw, and both networks answer at once. The seed says which pixels are flipped and in which order units are asked.")),
      classic.element(set, change), modern.element(set, change)),
    code);

  function change(changes) {
    Object.assign(set, changes);
    given();
  }

  function take(drawing) {
    board.set(pixels(drawing));
    return given();
  }

  async function corrupt(how) {
    const { drawing } = await ask("hopfield.corrupt", { drawing: digits(board.values), how, part, seed: set.seed });
    if (how === "flip") seed.value = set.seed += 1;  // the same pixels would be flipped back
    await take(drawing);
    classic.play();
  }

  function given() {
    set.drawing = digits(board.values);
    keep({ stored: set.stored.join() || ",", own: set.own.join(), drawing: set.drawing, rule: set.rule, way: set.way, seed: set.seed, beta: set.beta, steps: set.steps });
    offer();
    const memory = { stored: set.stored, own: set.own, drawing: set.drawing };
    fill(code, copyable("in Python", python(set)));
    return Promise.all([classic.look({ ...memory, rule: set.rule, together: set.way === "all", seed: set.seed }), modern.look({ ...memory, beta: 2 ** set.beta, steps: set.steps })])
      .then(() => { wrong.hidden = true; }, (error) => { Object.assign(wrong, { hidden: false, textContent: error.message }); });
  }

  function offer() {
    const stored = new Set(set.stored);
    const one = (name, drawing, on, act) => h("button", { type: "button", onclick: act, "aria-pressed": String(on), title: on ? `forget ${name}` : `store ${name}`, style: { padding: ".25rem", "line-height": 1, width: "3.4rem" }, data: { pattern: name } },
      tile({ width: side, height: side, values: pixels(drawing), label: "", size: 38, ...INK }), h("span", { class: "small", style: { display: "block", "line-height": 1.3, overflow: "hidden" } }, name));
    const focused = document.activeElement?.dataset?.pattern;
    fill(gallery, Object.entries(patterns).map(([name, drawing]) => one(name, drawing, stored.has(name), () => change({ stored: stored.has(name) ? set.stored.filter((other) => other !== name) : [...set.stored, name] }))),
      set.own.map((drawing, i) => one(`own ${i + 1}`, drawing, true, () => change({ own: set.own.filter((_, j) => j !== i) }))));
    gallery.querySelector(`[data-pattern="${focused}"]`)?.focus();
    const count = set.stored.length + set.own.length;
    const share = count / side ** 2;
    fill(load, h("div", { class: "row" }, h("span", { class: "mono", data: { load: count } }, `α = M / N = ${count} / ${side ** 2} = ${share.toFixed(2)}`),
      h("svg", { viewBox: "0 0 200 14", width: 200, height: 14, role: "img", "aria-label": `load ${share.toFixed(2)} of at most ${LIMIT}` },
        h("rect", { x: 0, y: 3, width: 200, height: 8, fill: "var(--shade)" }), h("rect", { x: 0, y: 3, width: Math.min(200, share * 500), height: 8, fill: share > LIMIT ? "var(--warm)" : "var(--accent)" }),
        h("line", { x1: LIMIT * 500, x2: LIMIT * 500, y1: 0, y2: 14, stroke: "var(--ink)", "stroke-width": 2 })),
      h("span", { class: "soft small" }, share > LIMIT ? `above ${LIMIT}: more than Hebb's rule holds, even of random patterns` : `Hebb's rule holds up to ${LIMIT} of random patterns (the line), and fewer that are alike`)));
  }

  if (set.drawing.length === side ** 2 / 4) take(set.drawing);
  else {
    board.set(pixels(patterns[FIRST.pattern]));
    corrupt("flip");
  }
  return () => { board.stop(); classic.stop(); modern.stop(); };
}

// ---------------------------------------------------------------------- the classic network: flip by flip

function classicNetwork(side, board, equations) {
  const latest = channel();
  const picture = tile({ width: side, height: side, values: new Array(side ** 2).fill(-1), label: "state of the network", size: 260, ...INK });
  picture.classList.add("pixels");
  const said = h("p", { role: "status", style: { "margin-top": ".5rem" } });
  const where = h("p", { class: "soft small" });
  const curve = h("div");
  const bars = h("div", { class: "bars" });
  const holds = h("p", { class: "small" });
  let found = null;
  let at = Infinity;
  let playing = null;

  async function look(memory) {
    const answer = await latest("hopfield", memory);
    const [energy, overlap] = [unpacked(answer.energy).values, unpacked(answer.overlap).values];
    const states = [pixels(memory.drawing)];
    for (const units of answer.changes) {
      const next = [...states[states.length - 1]];
      units.forEach((unit) => { next[unit] *= -1; });
      states.push(next);
    }
    const last = overlap.slice(-answer.names.length);
    const order = answer.names.map((_, i) => i).sort((a, b) => Math.abs(last[b]) - Math.abs(last[a])).slice(0, SHOWN);
    found = { ...answer, energy, overlap, states, order };
    if (!playing) at = Infinity;
    fill(holds, `${answer.stable.length} of the ${answer.names.length} stored patterns are places where the network rests.`);
    show();
  }

  function show() {
    if (!found) return;
    const steps = found.changes.length;
    const now = Math.min(at, steps);
    picture.set(found.states[now]);
    const units = now > 0 ? found.changes[now - 1] : [];
    where.textContent = `step ${now} of ${steps}${now ? `: ${units.length === 1 ? `unit ${units[0]} flips` : `${units.length} units flip`}, sweep ${found.sweeps[now - 1]}` : ": as it was given"}`;
    said.textContent = now === steps ? found.said : `On its way: energy ${found.energy[now].toFixed(0)}.`;
    const x = [...found.energy.keys()];
    draw(curve, [
      { x, y: [...found.energy], mode: x.length < 80 ? "lines+markers" : "lines", line: { color: COLOURS[0] }, marker: { size: 4 }, hovertemplate: "step %{x}: %{y:.1f}<extra></extra>" },
      { x: [now], y: [found.energy[now]], mode: "markers", marker: { size: 12, color: COLOURS[1] }, hoverinfo: "skip" },
    ], { height: 200, showlegend: false, margin: { l: 56, r: 10, t: 8, b: 38 }, xaxis: { title: { text: "step" } }, yaxis: { title: { text: "energy" } } });
    fill(bars, found.order.map((i) => barOf(found.names[i], found.overlap[now * found.names.length + i], (x) => x.toFixed(2))));
  }

  function to(step) {
    clearInterval(playing);
    playing = null;
    if (!found) return;
    at = Math.max(0, Math.min(step, found.changes.length));
    mark();
    show();
  }

  const mark = () => board.mark(found && at > 0 ? found.changes[Math.min(at, found.changes.length) - 1] ?? [] : []);

  function play() {
    to(still() ? Infinity : 0);
    if (still()) return;
    playing = setInterval(() => {
      at += 1;
      mark();
      show();
      if (found && at >= found.changes.length) { clearInterval(playing); playing = null; }
    }, 90);
  }

  const now = () => Math.min(at, found?.changes.length ?? 0);
  const sweep = () => { const current = found?.sweeps[now()]; to(found ? found.sweeps.filter((one) => one <= current).length : 0); };
  return {
    look, play, stop: () => { clearInterval(playing); latest.stop(); },
    element: (set, change) => h("section", h("h3", "Hopfield network"), picture, where,
      h("div", { class: "row" }, button("⏮", () => to(0), { "aria-label": "back to what was given" }), button("◀", () => to(now() - 1), { "aria-label": "one step back" }),
        button("step ▶", () => to(now() + 1), { class: "main" }), button("sweep", sweep), button("play", play), button("⏭", () => to(Infinity), { "aria-label": "to the end" })),
      said,
      h("div", { class: "row" },
        choice({ label: "rule of storage", name: "rule", value: set.rule, options: [["hebb", "Hebb"], ["pseudo-inverse", "pseudo-inverse"], ["storkey", "Storkey"]], change: (rule) => change({ rule }) }),
        choice({ label: "units change", name: "way", value: set.way, options: [["one", "one after the other"], ["all", "all at once"]], change: (way) => change({ way }) })),
      curve,
      h("p", { class: "soft small" }, "Each unit changes to the side that the others pull it to. One after the other, the energy never rises; where it cannot fall any more, the network rests. Frames in the drawing are the units that flip."),
      h("h3", "Overlap with what is stored"), bars, holds,
      h("div", { class: "scroll" }, formula(equations.energy), formula(equations.update))),
  };
}

// ---------------------------------------------------------------------- the modern network: attention

function modernNetwork(side, equations) {
  const latest = channel();
  const picture = tile({ width: side, height: side, values: new Array(side ** 2).fill(-1), label: "state of the modern network", size: 260, ...INK });
  picture.classList.add("pixels");
  const said = h("p", { role: "status", style: { "margin-top": ".5rem" } });
  const bars = h("div", { class: "bars" });

  async function look(memory) {
    const answer = await latest("hopfield.modern", memory);
    const [states, weights] = [unpacked(answer.states).values, unpacked(answer.weights).values];
    picture.set(states.slice(-(side ** 2)));
    const last = weights.slice(-answer.names.length);
    const order = answer.names.map((_, i) => i).sort((a, b) => last[b] - last[a]).slice(0, SHOWN);
    fill(bars, order.map((i) => barOf(answer.names[i], last[i], (x) => `${(100 * x).toFixed(1)} %`)));
    said.textContent = answer.said;
  }

  return {
    look, stop: () => latest.stop(),
    element: (set, change) => h("section", h("h3", "Modern Hopfield network"), picture, h("p", { class: "soft small" }, "shades are mixtures of patterns"),
      slider({ label: "β: how sharply it chooses", name: "beta", low: -10, high: 1, step: 0.25, value: set.beta, show: (x) => (2 ** x).toPrecision(2), change: (beta) => change({ beta }) }),
      slider({ label: "steps", name: "steps", low: 1, high: 6, step: 1, value: set.steps, change: (steps) => change({ steps }) }),
      said, h("h3", "Attention over what is stored"), bars,
      h("div", { class: "scroll", style: { "margin-top": ".6rem" } }, formula(equations.modern)),
      h("p", { class: "soft small" }, "One step of it is attention: the drawing is the query, the stored patterns are both keys and values, and the bars are the softmax's weights. It is what each head of a Transformer does:"),
      h("div", { class: "scroll" }, formula(equations.attention)),
      h("p", { class: "soft small" }, "With a small β all patterns are mixed; with a large one a single pattern stands out, however many are stored.")),
  };
}

// ---------------------------------------------------------------------- small things

const formula = ({ text, mathml: marked }) => h("p", marked ? mathml(marked) : h("code", text));


function barOf(name, value, show) {
  return [h("span", name), h("div", { class: "bar", style: { width: `${100 * Math.abs(value)}%`, background: value < 0 ? "var(--warm)" : "var(--accent)" } }), h("span", { class: "mono" }, show(value))];
}

function python(set) {
  return `import torch
from engram.data.patterns import icons, letters
from engram.models.hopfield import Hopfield
from engram.models.modern_hopfield import ModernHopfield

known = {**icons(), **letters()}
X = torch.stack([known[name] for name in ${JSON.stringify(set.stored)}]).flatten(1).float()
cue = torch.where(torch.rand(X.shape) < 0.25, -X, X)
Hopfield(Hopfield.Config(units=100)).store(X, "${set.rule}").recall(cue${set.way === "all" ? ", together=True" : ""})
ModernHopfield.of(X, beta=${(2 ** set.beta).toPrecision(2)}).recall(cue, steps=${set.steps})`;
}

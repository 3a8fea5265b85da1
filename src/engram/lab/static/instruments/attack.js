// Attack: a picture, a slider, and what the picture is taken for when each of its pixels moves a little.

import { bytes, disc, dropPlace, keepPicture, keptPicture } from "../brought.js";
import { COLOURS, draw } from "../charts.js";
import { button, choice, copyable, fill, h, settled, slider } from "../dom.js";
import { pixelCanvas, tile } from "../drawing.js";
import { keep, kept } from "../lab.js";
import { channel, unpacked } from "../link.js";

const KINDS = [["guess", "random guesses"], ["step", "one step (FGSM)"], ["pgd", "many steps (PGD)"], ["smallest", "smallest change that fools it"]];
const NORMS = [["linf", "largest change of a pixel (L∞)"], ["l2", "length of the whole change (L2)"]];
const SHOWN = 10;  // classes
const DRAWABLE = 64;  // pixels across
const DIVERGING = ["#0072B2", "#f2f2f2", "#D55E00"];
const percent = (p) => (p > 0.0005 && p < 0.9995 ? `${(100 * p).toFixed(1)} %` : `${Math.round(100 * p)} %`);

const shown = (element, whether) => element?.style.setProperty("display", whether ? "" : "none");

export async function mount(holder, { run, step }) {
  const [latest, curves] = [channel(), channel()];
  const about = await latest("attack.about", { run, step });
  const [channels, height, width] = about.shape;
  const state = {
    item: Math.max(0, Math.min(about.count - 1, Number(kept("item", "0")) || 0)), kind: kept("kind", "pgd"), norm: kept("norm", "linf"), steps: Number(kept("steps", "20")),
    target: Number(kept("target", "-1")) < about.classes.length ? Number(kept("target", "-1")) : -1, seed: Number(kept("seed", "0")), source: about.count ? kept("source", "test") : "own",
    eps: { linf: Number(kept("linf", "0.1")), l2: Math.min(about.largest.l2, Number(kept("l2", (about.largest.l2 / 5).toFixed(1)))) },
    own: keptPicture("picture", channels * height * width) ?? (about.count ? null : disc(about.shape)),
  };
  let [points, right, marked] = [[], 0, null];

  // ------------------------------------------------------------------ which picture

  const board = channels === 1 && Math.max(height, width) <= DRAWABLE
    ? pixelCanvas({ width, height, values: state.own ?? undefined, label: "your own picture", size: 240, change: (values, ended) => { state.own = values.slice(); if (ended) keepPicture("picture", state.own); moved(); } }) : null;
  const brings = dropPlace({ label: "a picture file", shape: about.shape, taken: (values) => { state.own = values; board?.set(values); keepPicture("picture", values); anew(); } });
  const number = h("input", { type: "number", name: "item", min: 0, max: about.count - 1, value: state.item, "aria-label": "number of the test picture", style: { width: "6.5rem" }, oninput: () => go(Number(number.value), false) });
  const go = (item, writes = true) => {
    if (!about.count || !Number.isInteger(item)) return;
    state.item = Math.min(about.count - 1, Math.max(0, item));
    if (writes) number.value = state.item;
    anew();
  };
  const tests = h("div", { class: "row" }, button("◀", () => go(state.item - 1), { "aria-label": "previous picture" }), number, button("▶", () => go(state.item + 1), { "aria-label": "next picture" }),
    button("random", () => go(Math.floor(Math.random() * about.count))));
  const sources = [about.count && ["test", "test picture"], ["own", board ? "draw your own" : "your own picture"]].filter(Boolean).map(([name, text]) => button(text, () => { state.source = name; anew(); }, { data: { source: name } }));

  // ------------------------------------------------------------------ how it is attacked

  const kinds = choice({ label: "attack", name: "kind", options: KINDS, value: state.kind, change: (value) => { state.kind = value; anew(); } });
  const norms = choice({ label: "how a change is measured", name: "norm", options: NORMS, value: state.norm, change: (value) => { state.norm = value; reach(); anew(); } });
  const targets = choice({ label: "shall be taken for", name: "target", options: [["-1", "anything else (untargeted)"], ...about.classes.map((name, i) => [String(i), name])], value: String(state.target), change: (value) => { state.target = Number(value); anew(); } });
  const steps = slider({ label: "steps", name: "steps", low: 1, high: 100, step: 1, value: state.steps, change: (value) => { state.steps = value; moved(); } });
  const again = button("other chance", () => { state.seed += 1; anew(); }, { class: "small" });
  const reaches = h("div", { style: { "max-width": "38rem" } });
  let eps = null;
  function reach() {
    eps = slider({ label: "ε, how far it may go", name: "eps", low: 0, high: about.largest[state.norm], step: state.norm === "linf" ? 0.005 : 0.05, value: state.eps[state.norm], show: (x) => x.toFixed(state.norm === "linf" ? 3 : 2), change: (x) => { state.eps[state.norm] = x; look(); mark(); } });
    fill(reaches, eps);
  }

  // ------------------------------------------------------------------ what is seen

  const said = h("p", { role: "status", class: "verdict", style: { "min-height": "3em", "font-size": "1.05rem" } });
  const pictures = h("div", { style: { display: "grid", gap: ".8rem", "grid-template-columns": "repeat(3, minmax(0, 12rem))" } });
  const bars = h("div", { class: "bars", role: "table", "aria-label": "probabilities before and after" });
  const chart = h("div", { role: "img", "aria-label": "probability against ε" });
  const curveCaption = h("figcaption", { class: "small" });
  const curveSaid = h("p", { class: "soft small" });
  const commands = h("div");
  const key = (colour, text) => [h("span", { style: { display: "inline-block", width: ".8em", height: ".8em", background: colour, "border-radius": ".15em" } }), ` ${text}  `];
  fill(holder, h("div", { class: "two" },
    h("div", { class: "panel" }, h("div", { class: "row" }, sources), h("div", { style: { margin: ".7rem 0" } }, tests, board?.element, brings), kinds, steps, norms, targets, again,
      about.withstands && h("p", { class: "soft small", style: { "margin-top": ".7rem" } }, `This one has learnt to withstand ${about.withstands.norm === "linf" ? "L∞" : "L2"} changes up to ${about.withstands.eps}.`)),
    h("div", reaches, said, pictures,
      h("div", { class: "halves", style: { "margin-top": "1rem" } },
        h("figure", h("figcaption", { class: "small" }, "What it is taken for: ", key("var(--soft)", "before"), key("var(--warm)", "after")), bars),
        h("figure", curveCaption, chart, curveSaid)),
      h("p", { class: "soft small" }, "The gradient says for every pixel which way makes the loss grow; an attack goes that way as far as ε lets it. Random changes of the same size hardly matter: it is the direction that fools."), commands)));

  // ------------------------------------------------------------------ asking

  const given = () => ({
    run, step, kind: state.kind, norm: state.norm, steps: state.steps, target: state.kind === "smallest" ? -1 : state.target, seed: state.seed,
    ...(state.source === "own" ? { pixels: bytes(state.own ?? new Float32Array(channels * height * width)) } : { item: state.item }),
  });

  function remember() {
    keep({ item: state.item, kind: state.kind, norm: state.norm, steps: state.steps, target: state.target, seed: state.seed || "", source: state.source, linf: state.eps.linf, l2: state.eps.l2 });
    sources.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.source === state.source)));
    shown(tests, state.source === "test");
    shown(board?.element, state.source === "own");
    shown(brings, state.source === "own");
    shown(steps, state.kind === "pgd");
    shown(targets, state.kind !== "smallest");
    shown(again, ["guess", "pgd"].includes(state.kind));
    shown(reaches, state.kind !== "smallest");
    curveCaption.textContent = `The further the attack may go, the less is left of the right class. ${state.kind === "smallest" ? "The line is the smallest change that was found; PGD, drawn here, may need more." : "The line is where you are."}`;
    fill(commands, copyable("the same for many test pictures", `engram attack ${run.includes("/") ? run : `runs/${run}`} --norm ${state.norm} --eps ${state.eps[state.norm]} --attack-steps ${state.steps}`));
  }

  let slow = 0;  // what is seen fades while its answer is waited for
  const settle = () => { clearTimeout(slow); said.style.opacity = 1; };

  async function look() {
    remember();
    if (state.source === "own" && !state.own) {
      said.textContent = board ? "Draw something, or choose a file: what it is taken for appears at once." : "Choose a file, or drop one.";
      fill(pictures); fill(bars);
      return;
    }
    try {
      clearTimeout(slow);
      slow = setTimeout(() => { said.style.opacity = 0.5; }, 400);
      show(await latest("attack", { ...given(), eps: state.eps[state.norm] }));
    } catch (error) {
      settle();
      said.textContent = error.message;
      fill(pictures); fill(bars);
    }
  }

  async function follow() {
    points = [];
    if (state.source === "own" && !state.own) { draw(chart, [], {}); return; }
    curveSaid.textContent = "";
    try {
      ({ right } = await curves("attack.curve", given(), (part) => { if (part.p) { points.push(part); trace(); } }));
      trace();
    } catch (error) {
      curveSaid.textContent = error.message;
    }
  }

  const anew = () => { marked = null; look(); follow(); };
  const moved = settled(60, anew);

  // ------------------------------------------------------------------ showing

  function show(found) {
    settle();
    const [x, changed] = [unpacked(found.x).values, unpacked(found.moved).values];
    const difference = changed.map((value, i) => value - x[i]);
    const most = Math.max(...difference.map(Math.abs));
    right = found.right;
    const [was, is] = [found.before, found.after].map((p) => p.indexOf(Math.max(...p)));
    const name = (i) => about.classes[i];
    const size = state.norm === "linf" ? `No pixel changed by more than ${found.linf.toFixed(3)}` : `The change is ${found.l2.toFixed(2)} long`;
    fill(said, verdict({ found, was, is, name }), h("br"), h("span", { class: "soft small" }, `${size}.`));
    const look = (label, values, more = {}) => h("figure", { style: { margin: 0 } }, h("figcaption", { class: "small" }, label), tile({ width, height, values, label, size: 190, ...more }));
    fill(pictures, look(`the picture: ${found.truth >= 0 ? name(found.truth) : name(was)}`, x), look(`changed: ${name(is)}`, changed),
      most > 0 ? look(`the difference × ${(1 / most).toPrecision(2).replace(/e\+?(\d+)/, "·10^$1")}`, channels === 1 ? difference : difference.map((d) => 0.5 + d / most / 2), channels === 1 ? { range: [-most, most], tones: DIVERGING } : {}) : look("no difference", difference, { range: [-1, 1], tones: DIVERGING }));
    fill(bars, rows(found, name));
    if (state.kind === "smallest") { marked = found[state.norm]; mark(); }
    if (!points.length) return;
    trace();
  }

  function verdict({ found, was, is, name }) {
    const after = `«${name(is)}» (${percent(found.after[is])})`;
    if (found.truth >= 0 && was !== found.truth) return `It is «${name(found.truth)}», and is taken for «${name(was)}» before anything is changed; then for ${after}.`;
    const begun = `Taken for «${name(was)}» (${percent(found.before[was])})`;
    if (state.target >= 0 && state.kind !== "smallest") return is === state.target ? `${begun}, and after the change for what was wanted: ${after}.` : `${begun}; after the change for ${after}, and not yet for «${name(state.target)}».`;
    return is === found.right ? `${begun}, and still after the change: ${after}.` : `${begun}, and after the change for ${after}.`;
  }

  function rows(found, name) {
    const all = found.before.map((p, i) => i);
    const top = all.length <= SHOWN ? all : [...all].sort((a, b) => Math.max(found.before[b], found.after[b]) - Math.max(found.before[a], found.after[a])).slice(0, SHOWN);
    const bar = (p, colour) => h("div", { class: "bar", style: { width: `${100 * p}%`, background: colour, height: ".5rem", "margin-bottom": "1px" } });
    return top.map((i) => [
      h("span", { role: "cell", style: { "font-weight": i === found.right ? 650 : 400 } }, name(i), i === found.right && " ✓"),
      h("div", { role: "cell" }, bar(found.before[i], "var(--soft)"), bar(found.after[i], "var(--warm)")),
      h("span", { role: "cell", class: "small", style: { "font-variant-numeric": "tabular-nums" }, data: { class: name(i) } }, `${percent(found.before[i])} → ${percent(found.after[i])}`),
    ]);
  }

  function trace() {
    const others = points.map(({ p }) => p.map((value, i) => (i === right ? -1 : value)));
    const [x, wanted] = [points.map((one) => one.eps), state.kind !== "smallest" && state.target >= 0];
    const other = wanted ? points.map(({ p }) => p[state.target]) : others.map((p) => Math.max(...p));
    draw(chart, [
      { x, y: points.map(({ p }) => p[right]), name: `«${about.classes[right]}»`, mode: "lines+markers", line: { color: COLOURS[0] }, hovertemplate: "ε %{x:.3f}: %{y:.1%}<extra></extra>" },
      { x, y: other, name: wanted ? `«${about.classes[state.target]}»` : "the likeliest other", mode: "lines+markers", line: { color: COLOURS[1], dash: "dot" }, hovertemplate: "ε %{x:.3f}: %{y:.1%}<extra></extra>" },
    ], { height: 260, xaxis: { title: { text: "ε" }, range: [0, about.largest[state.norm]] }, yaxis: { range: [-0.03, 1.03], tickformat: ".0%" }, shapes: here() });
  }

  const here = () => [{ type: "line", yref: "paper", y0: 0, y1: 1, x0: marked ?? state.eps[state.norm], x1: marked ?? state.eps[state.norm], line: { color: "#8c8c8c", width: 1.5, dash: "dash" } }];
  const mark = () => { if (points.length && chart._fullLayout) Plotly.relayout(chart, { shapes: here() }); };

  reach();
  anew();
  return () => { settle(); latest.stop(); curves.stop(); board?.stop(); };
}

// Out of the noise: the way from one noise to pictures or points, to be scrubbed; the same noise in two ways.

import { COLOURS } from "../charts.js";
import { button, choice, copyable, fill, h, settled, slider, still } from "../dom.js";
import { keep, kept, remembering } from "../lab.js";
import { ask, channel, unpacked } from "../link.js";

const SAMPLERS = [["ancestral", "ancestral: new noise at every step"], ["ddim", "DDIM: no chance, a curve"], ["second-order", "second-order: the curve in few steps"], ["langevin", "Langevin: uphill by the score"]];
const STEPS = [1, 2, 3, 4, 5, 7, 10, 15, 20, 30, 50, 75, 100];
const [PICTURES, POINTS, COLUMNS, FRAMES, TRAILS, SIDE] = [8, 600, 4, 12, 24, 400];
const PACE_MS = 90;

export async function mount(holder, { run, step }) {
  fill(holder, h("p", { class: "soft" }, "The model is opened …"));
  const about = await ask("diffusion.about", { run, step });
  const memory = remembering();
  const count = about.pictures ? PICTURES : POINTS;
  const real = about.real && unpacked(about.real);
  let seed = Number(kept("seed", "0"));
  let comparing = kept("compare") === "1";
  let film = Number(kept("film", "0"));
  let wanted = kept("t") === "" ? null : Number(kept("t"));  // the time that is looked at; null is the end
  let playing = null;
  let films = null;

  const known = (asking, otherwise) => (about.classes.length && (["open", "each"].includes(asking) || about.classes[asking]) ? asking : otherwise);
  const first = { sampler: about.sampler, steps: Math.max(10, about.steps), asking: about.classes.length ? "each" : "open", guidance: about.guidance };
  const other = about.classes.length ? { ...first, guidance: 3 } : { ...first, sampler: "ancestral" };
  const sides = [side("A", "", first), side("B", "b_", other)];
  const present = () => (comparing ? sides : sides.slice(0, 1));

  const number = h("input", { type: "number", name: "seed", min: 0, max: 999999, value: seed, "aria-label": "seed of the noise", style: { width: "6.5rem" }, oninput: settled(200, () => anew(Number(number.value))) });
  const scrub = slider({ label: "from noise to " + (about.pictures ? "picture" : "points"), name: "scrub", low: 0, high: 1, step: 1, value: 1, show: () => "", change: (x) => { halt(); look(x >= last() ? null : times()[x] ?? 0); } });
  const play = button("▶ play", () => (playing ? halt() : start()), { class: "main" });
  const compare = h("input", { type: "checkbox", name: "compare", checked: comparing, onchange: () => { comparing = compare.checked; keep({ compare: comparing ? "1" : "" }); arrange(); if (comparing) sides[1].go(); show(); } });
  const level = h("p", { class: "soft small", data: { level: "" } });
  const strip = h("div");
  const stage = h("div");
  const panels = h("div");
  const words = h("div");
  fill(holder, h("div", { class: "two" },
    h("div", { class: "panel" },
      h("div", { class: "row" }, h("label", "noise ", number), button("another noise", () => { number.value = Math.floor(Math.random() * 1e6); anew(Number(number.value)); }, { class: "small" })),
      panels, h("label", compare, " compare with B, from the same noise")),
    h("div", h("div", { class: "row" }, play, h("div", { style: { flex: "1", "min-width": "12rem" } }, scrub)), level, stage, strip, words)));

  function anew(value) {
    if (!Number.isInteger(value) || value < 0 || value > 2 ** 31) return;
    seed = value;
    memory.keep({ seed: seed || "" });
    present().forEach((one) => one.go());
  }

  // ---------------------------------------------------------------- where in time

  function times() {
    return [...new Set(present().flatMap((one) => one.list().map(({ t }) => t)))].sort((a, b) => b - a);
  }

  // Where the slider ends: before all has come, where it probably will.
  const last = () => Math.max(1, times().length - 1, ...present().map((one) => (one.done() ? 1 : one.given.steps)));

  const place = () => (wanted === null ? times().length - 1 : Math.max(0, times().findLastIndex((t) => t >= wanted)));

  function look(t) {
    wanted = t;
    memory.keep({ t: t === null ? "" : t });
    show();
  }

  function halt() {
    clearInterval(playing);
    playing = null;
    play.textContent = "▶ play";
  }

  function start() {
    halt();
    if (still()) { look(null); return; }
    wanted = about.levels;
    play.textContent = "⏸ pause";
    playing = setInterval(() => {
      const next = times()[place() + 1];
      if (next !== undefined) wanted = next;
      else if (present().every((one) => one.done())) { halt(); wanted = null; }
      show();
    }, PACE_MS);
    show();
  }

  function show() {
    const all = times();
    if (!all.length) return;
    const at = place();
    scrub.input.max = last();
    scrub.set(wanted === null ? last() : at);
    const [now] = present().map((one) => one.show(wanted ?? 0)).filter(Boolean);
    scrub.querySelector("output").textContent = `t = ${all[at]} of ${about.levels}`;
    if (now) level.textContent = `Of the ${about.pictures ? "picture" : "data"} ${percent(now.signal)} is left at this time, and noise is ${percent(now.noise)} of its full strength.`;
    films?.();
  }

  // ---------------------------------------------------------------- one way out of the noise

  function side(name, prefix, usual) {
    const latest = channel();
    const given = { sampler: kept(`${prefix}sampler`, usual.sampler), steps: Number(kept(`${prefix}steps`, usual.steps)), asking: known(kept(`${prefix}class`), usual.asking), guidance: Number(kept(`${prefix}guidance`, usual.guidance)) };
    let [fresh, old] = [[], []];
    let turn = 0;
    const canvases = { x: surface(`what there is, ${name}`), x_0: surface(`what the model expects, ${name}`) };
    const said = h("p", { role: "status" });
    const soon = settled(120, go);

    function set(change) {
      Object.assign(given, change);
      guidance.input.disabled = given.asking === "open";
      memory.keep({ [`${prefix}sampler`]: given.sampler, [`${prefix}steps`]: given.steps, [`${prefix}class`]: about.classes.length ? given.asking : "", [`${prefix}guidance`]: about.classes.length ? given.guidance : "" });
      command();
      soon();
    }
    const nearest = STEPS.reduce((best, one, i) => (Math.abs(one - given.steps) < Math.abs(STEPS[best] - given.steps) ? i : best), 0);
    const guidance = slider({ label: "guidance", name: `${prefix}guidance`, low: 0, high: 8, step: 0.25, value: given.guidance, show: (x) => x.toFixed(2), change: (x) => set({ guidance: x }) });
    guidance.input.disabled = given.asking === "open";
    const controls = h("fieldset", h("legend", name),
      choice({ label: "sampler", name: `${prefix}sampler`, options: SAMPLERS, value: given.sampler, change: (value) => set({ sampler: value }) }),
      slider({ label: "steps", name: `${prefix}steps`, low: 0, high: STEPS.length - 1, step: 1, value: nearest, show: (i) => String(STEPS[i]), change: (i) => set({ steps: STEPS[i] }) }),
      about.classes.length > 0 && [
        choice({ label: "class", name: `${prefix}class`, options: [["open", "none asked for"], ["each", "each in turn"], ...about.classes.map((one, i) => [String(i), one])], value: given.asking, change: (value) => set({ asking: value }) }), guidance]);

    function go() {
      const mine = (turn += 1);
      let ready = Promise.resolve();
      const one = /^\d+$/.test(given.asking);
      const asked = { run, step, seed, count, sampler: given.sampler, steps: given.steps, asking: one ? "one" : given.asking, label: one ? Number(given.asking) : 0, guidance: given.asking === "open" ? 0 : given.guidance };
      if (fresh.done) old = fresh;
      fresh = [];
      const coming = fresh;
      const add = (part) => { ready = ready.then(() => readable(part)).then((moment) => { if (mine === turn) { coming.push(moment); show(); } }); };
      latest("diffusion", asked, add).then(() => ready).then(() => { if (mine === turn) { coming.done = true; said.textContent = ""; show(); } })
        .catch((error) => { coming.failed = true; if (mine === turn) said.textContent = error.message; });
    }

    const list = () => (fresh.done || !old.length ? fresh : old);

    // What was there before stays until the new way has come as far: so one sees what changes.
    function momentAt(t) {
      const known = [fresh, old].find((all) => all.length && all.at(-1).t <= t) ?? list();
      return [known.findLast((one) => one.t >= t) ?? known[0], known];
    }

    function showAt(t) {
      const [now, known] = momentAt(t);
      if (!now) return null;
      for (const kind of ["x", "x_0"]) {
        if (about.pictures) copied(canvases[kind], now[kind]);
        else cloud(canvases[kind], now, kind, known);
      }
      return now;
    }
    return { name, controls, canvases, said, given, go, list, show: showAt, done: () => fresh.done || fresh.failed, stop: latest.stop };
  }

  function surface(label) {
    const canvas = h("canvas", { class: "pixels", width: 1, height: 1, role: "img", "aria-label": label, style: { width: "100%", "touch-action": "auto", cursor: about.pictures ? "pointer" : "default" } });
    if (about.pictures) canvas.addEventListener("click", ({ offsetX, offsetY }) => {
      const rows = Math.ceil(count / COLUMNS);
      choose(Math.floor(offsetY / canvas.clientHeight * rows) * COLUMNS + Math.floor(offsetX / canvas.clientWidth * COLUMNS));
    });
    return canvas;
  }

  async function readable(part) {
    if (!about.pictures) return { ...part, x: unpacked(part.x), x_0: unpacked(part.x_0), score: part.score && unpacked(part.score) };
    const [x, x_0] = await Promise.all([part.x, part.x_0].map(loaded));
    return { ...part, x, x_0 };
  }

  // ---------------------------------------------------------------- points

  function cloud(canvas, now, kind, known) {
    const ratio = devicePixelRatio || 1;
    canvas.width = canvas.height = SIDE * ratio;
    const pen = canvas.getContext("2d");
    const [low, high] = about.frame;
    const at = (x, y) => [(x - low) / (high - low) * SIDE, (high - y) / (high - low) * SIDE];
    pen.scale(ratio, ratio);
    dots(pen, real, at, "rgba(128,128,128,0.4)", 1.2);
    if (kind === "x" && now.score) arrows(pen, now.score);
    if (kind === "x") trails(pen, known.filter(({ t }) => t >= now.t), at);
    dots(pen, now[kind], at, COLOURS[kind === "x" ? 0 : 2], 1.8);
  }

  function dots(pen, cloudOf, at, colour, radius) {
    pen.fillStyle = colour;
    pen.beginPath();
    for (let i = 0; i < cloudOf.shape[0]; i += 1) {
      const [x, y] = at(cloudOf.at(i, 0), cloudOf.at(i, 1));
      pen.moveTo(x, y);
      pen.arc(x, y, radius, 0, 7);
    }
    pen.fill();
  }

  function arrows(pen, score) {
    const gap = SIDE / (about.arrows - 1);
    pen.strokeStyle = COLOURS[1];
    pen.lineWidth = 1;
    pen.beginPath();
    for (let i = 0; i < about.arrows ** 2; i += 1) {
      const [x, y] = [(i % about.arrows) * gap, SIDE - Math.floor(i / about.arrows) * gap];
      const long = Math.hypot(score.at(i, 0), score.at(i, 1)) || 1;
      const [dx, dy] = [score.at(i, 0), -score.at(i, 1)].map((d) => d / Math.max(1, long) * gap * 0.8);
      pen.moveTo(x, y);
      pen.lineTo(x + dx, y + dy);
      for (const turn of [-1, 1]) {
        pen.moveTo(x + dx, y + dy);
        pen.lineTo(x + 0.65 * dx + turn * 0.2 * dy, y + 0.65 * dy - turn * 0.2 * dx);
      }
    }
    pen.stroke();
  }

  function trails(pen, moments, at) {
    pen.strokeStyle = COLOURS[5];
    pen.lineWidth = 0.8;
    pen.beginPath();
    for (let i = 0; i < TRAILS; i += 1) moments.forEach(({ x }, m) => pen[m ? "lineTo" : "moveTo"](...at(x.at(i, 0), x.at(i, 1))));
    pen.stroke();
  }

  // ---------------------------------------------------------------- the film of one picture

  function choose(which) {
    if (which < 0 || which >= count) return;
    film = which;
    keep({ film: film || "" });
    arrange();
    show();
  }

  // A few moments of one picture from left to right: above what there is, below what the model expects.
  function filmed(one) {
    const [, high, wide] = about.shape;
    let shown = [];
    const canvas = h("canvas", { class: "pixels", role: "img", "aria-label": `film of picture ${film + 1}, ${one.name}`, style: { width: "100%", cursor: "pointer", "touch-action": "auto" }, onclick: ({ offsetX }) => { halt(); look(shown[Math.min(shown.length - 1, Math.floor(offsetX / canvas.clientWidth * FRAMES))]?.t || null); } });
    const [left, top] = [(film % COLUMNS) * (wide + 1), Math.floor(film / COLUMNS) * (high + 1)];
    const draw = () => {
      const all = one.list();
      shown = all.length <= FRAMES ? all : Array.from({ length: FRAMES }, (_, i) => all[Math.round(i * (all.length - 1) / (FRAMES - 1))]);
      [canvas.width, canvas.height] = [FRAMES * (wide + 1), 2 * (high + 1) + 1];
      const pen = canvas.getContext("2d");
      shown.forEach((moment, i) => [moment.x, moment.x_0].forEach((image, row) => {
        pen.drawImage(image, left, top, wide, high, i * (wide + 1), row * (high + 1), wide, high);
      }));
      const now = Math.max(0, shown.findLastIndex(({ t }) => t >= (wanted ?? 0)));
      pen.fillStyle = COLOURS[1];
      pen.fillRect(now * (wide + 1), 2 * (high + 1), wide, 1);
    };
    return { canvas, draw };
  }

  // ---------------------------------------------------------------- the page

  function arrange() {
    fill(panels, present().map((one) => one.controls));
    sides[0].controls.querySelector("legend").textContent = comparing ? "A" : "the way out";
    const above = about.pictures ? "What there is (x" : "Points on their way (x";
    fill(stage, present().map((one) => h("div",
      h("div", { class: "halves", style: { "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 15rem), 1fr))", "max-width": "56rem", gap: ".6rem 1.2rem" } },
        h("figure", { style: { margin: "0" } }, h("figcaption", { class: "small" }, comparing && h("b", `${one.name} · `), above, h("sub", "t"), ")"), one.canvases.x),
        h("figure", { style: { margin: "0" } }, h("figcaption", { class: "small" }, comparing && h("b", `${one.name} · `), "What the model takes it for (x", h("sub", "0"), ")"), one.canvases.x_0)),
      one.said)));
    films = null;
    if (about.pictures) {
      const made = present().map(filmed);
      films = () => made.forEach(({ draw }) => draw());
      fill(strip, choice({ label: "film of picture", name: "film", options: Array.from({ length: count }, (_, i) => [String(i), String(i + 1)]), value: String(film), change: (value) => choose(Number(value)) }),
        made.map(({ canvas }, i) => h("figure", { style: { margin: "0 0 .6rem" } }, comparing && h("figcaption", { class: "small" }, h("b", sides[i].name)), canvas)));
      strip.querySelector("select").style.width = "auto";
    }
    command();
  }

  function command() {
    const { sampler, steps, asking, guidance } = sides[0].given;
    const wish = about.classes.length && asking !== "open" ? ` --guidance ${guidance}${asking === "each" ? "" : ` --label ${asking}`}` : "";
    const caption = about.pictures
      ? "First the model sees only what all pictures have in common; then the shape is decided, then its strokes. Click a picture for its film."
      : "Grey are real points. Arrows are the score, the way to where points are more probable: at first to the middle of all, later to the nearest part of the shape. Thin lines are the ways of some points.";
    fill(words, h("p", { class: "soft small" }, caption), copyable("in a terminal", `engram sample runs/${run} --sampler ${sampler} --sampler-steps ${steps}${wish}`));
  }

  arrange();
  present().forEach((one) => one.go());
  if (wanted === null && !kept("seed") && !still()) start();
  return () => { halt(); memory.stop(); sides.forEach((one) => one.stop()); };
}

const percent = (x) => `${Math.round(100 * x)} %`;

async function loaded(source) {
  const image = new Image();
  image.src = source;
  await image.decode();
  return image;
}

function copied(canvas, image) {
  [canvas.width, canvas.height] = [image.width - 1, image.height - 1];
  canvas.getContext("2d").drawImage(image, 0, 0);
}

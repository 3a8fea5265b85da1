// Writing: tokens as they are drawn, each with the probabilities it was drawn from; settings act on what comes next.

import { button, copyable, fill, h, settled, slider, still } from "../dom.js";
import { keep, kept } from "../lab.js";
import { channel } from "../link.js";
import { percent, shown } from "./attention/colours.js";

const SETTINGS = [  // name, label, low, high, step, usual, how it is shown
  ["temperature", "temperature", 0, 2, 0.05, 0.8, (x) => x.toFixed(2)],
  ["top_k", "top-k", 0, 50, 1, 0, (x) => (x ? String(x) : "all")],
  ["top_p", "top-p", 0.05, 1, 0.05, 1, (x) => (x === 1 ? "all" : x.toFixed(2))],
  ["min_p", "min-p", 0, 0.5, 0.01, 0, (x) => (x ? x.toFixed(2) : "off")],
  ["repetition", "repetition", 1, 2, 0.05, 1, (x) => (x === 1 ? "as it is" : `÷ ${x.toFixed(2)}`)],
];
const FASTEST = 60;  // tokens per second beyond which nobody waits

// Which settings a stretch of tokens was written with, in the address: length,temperature,top_k,top_p,min_p,repetition;…
const pack = (tokens) => strokes(tokens).map((one) => one.join(",")).join(";");
const unpack = (text) => text.split(";").filter(Boolean).map((one) => one.split(",").map(Number));
function strokes(tokens) {
  const found = [];
  for (const { settings } of tokens) {
    if (found.length && found.at(-1).slice(1).join() === settings.join()) found.at(-1)[0] += 1;
    else found.push([1, ...settings]);
  }
  return found;
}

export function mount(holder, { run, step }) {
  if (kept("of", run) !== run) keep({ tokens: "", strokes: "", by_hand: "" });  // tokens of another model mean nothing here
  keep({ of: run });
  const values = Object.fromEntries(SETTINGS.map(([name, , , , , usual]) => [name, Number(kept(name, String(usual)))]));
  const state = { given: [], written: [], waiting: [], writing: false, chosen: null, held: null, ended: false, rate: null, seed: Number(kept("seed", "0")), timer: null };
  const [pen, reading] = [channel(), channel()];

  const prompt = h("textarea", { name: "prompt", rows: 2, spellcheck: "false", "aria-label": "prompt", value: kept("prompt"), oninput: () => { keep({ prompt: prompt.value }); stop(); retyped(); } });
  const paper = h("div", { class: "panel mono paper", role: "group", "aria-label": "the text", style: { "white-space": "pre-wrap", "min-height": "12rem", "max-height": "26rem", "overflow-y": "auto", "font-size": ".95rem", "line-height": 1.75, "overflow-wrap": "anywhere" }, onkeydown: walk, onpointerleave: () => { state.held = state.chosen; } });
  const status = h("p", { role: "status", class: "small" });
  const numbers = h("ul", { class: "cards" });
  const detail = h("div", { class: "panel detail" });
  const commands = h("div");
  const pace = slider({ label: "pace, tokens/s", name: "pace", low: 2, high: FASTEST, step: 1, value: Number(kept("pace", "20")), show: (x) => (x >= FASTEST ? "as it comes" : String(x)), change: (x) => { keep({ pace: x }); tick(); } });
  const length = slider({ label: "tokens at a time", name: "length", low: 20, high: 400, step: 20, value: Number(kept("length", "200")), show: String, change: (x) => keep({ length: x }) });
  const sliders = SETTINGS.map(([name, label, low, high, by, , show]) => slider({ label, name, low, high, step: by, value: values[name], show, change: (x) => { values[name] = x; keep({ [name]: x }); drawCommands(); turned(); } }));
  const go = button("stop", () => (state.writing ? stop() : write()), { class: "main" });
  const again = button("again, another seed", () => { state.seed = (state.seed + 1) % 1000; keep({ seed: state.seed }); begin(); });

  fill(holder, h("div", { class: "two" },
    h("div", { class: "panel" }, sliders.slice(0, 3), h("details", { open: values.min_p > 0 || values.repetition > 1 }, h("summary", { class: "small" }, "more"), sliders.slice(3), length), pace,
      h("p", { class: "soft small" }, "Move a slider while it writes: what comes next is drawn with the new setting.")),
    h("div", prompt, h("div", { class: "row", style: { margin: ".5rem 0" } }, go, again, button("from the prompt", begin), status), paper,
      h("p", { class: "soft small", style: { margin: ".4rem 0" } }, "The more orange a token, the less probable it was where it was drawn; the prompt is underlined. Point at a token, or choose one with the arrow keys, to see what else there was; click it to write on from there."),
      numbers, detail, commands)));

  // ---------------------------------------------------------------- writing

  const settings = () => SETTINGS.map(([name]) => values[name]);
  const text = () => ({ run, step, prompt: prompt.value, tokens: state.written.map(({ id }) => id) });

  async function write() {
    reveal(0);
    state.waiting = [];
    [state.writing, state.ended] = [true, false];
    const with_ = settings();
    let [count, seconds] = [0, 0];
    drawState();
    try {
      const end = await pen("generation", { ...text(), ...values, seed: state.seed, length: Number(length.input.value) }, (part) => {
        [count, seconds] = [count + part.written.length, seconds + part.seconds];
        state.rate = count / seconds;
        state.waiting.push(...part.written.map((one) => ({ ...one, settings: with_ })));
        tick();
      });
      state.ended = end.ended ? "The model ended the text." : end.full ? "The text is full." : "";
      state.waiting.push(null);
      tick();
    } catch (error) {
      failed(error);
    }
  }

  // Tokens that have come are shown at the pace that is set.
  function tick() {
    if (state.timer || !state.waiting.length) return;
    const fast = still() || Number(pace.input.value) >= FASTEST;
    reveal(fast ? Infinity : 1);
    if (state.waiting.length) state.timer = setTimeout(() => { state.timer = null; tick(); }, fast ? 0 : 1000 / Number(pace.input.value));
  }

  function reveal(count) {
    if (count === 0) { clearTimeout(state.timer); state.timer = null; return; }
    for (const one of state.waiting.splice(0, count)) {
      if (one === null) { stop(); return; }
      state.written.push(one);
      paper.append(chip(one, state.given.length + state.written.length - 1));
    }
    if (state.held === null) {
      point(all().length - 1);
      paper.scrollTop = paper.scrollHeight;
    }
    drawState();
  }

  function stop() {
    pen.stop();
    reveal(0);
    state.waiting = [];
    state.writing = false;
    drawState();
    save();
  }

  // A setting was moved: on from what can be seen, with what is not yet seen drawn anew.
  const turned = settled(60, () => { if (state.writing) { pen.stop(); write(); } });

  async function read(tokens, strokesOf) {
    state.given = [];
    let given = 0;
    const by = strokesOf.flatMap(([count, ...one]) => Array.from({ length: count }, () => one));
    const hand = new Set(kept("by_hand").split(",").filter(Boolean).map(Number));
    await reading("generation.read", { run, step, prompt: prompt.value, tokens, strokes: strokesOf }, (part) => {
      if ("prompt" in part) { given = part.given; if (!prompt.value) prompt.value = part.prompt; }
      for (const one of part.read) {
        if (state.given.length < given) state.given.push({ ...one, prompt: true });
        else state.written.push({ ...one, settings: by[state.written.length], hand: hand.has(state.written.length) });
      }
    });
  }

  // The prompt as the model reads it, then on from there.
  async function begin() {
    stop();
    [state.written, state.chosen, state.held, state.writing] = [[], null, null, true];
    drawState();
    try {
      await read([], []);
      drawPaper();
      await write();
    } catch (error) {
      failed(error);
    }
  }

  async function taken() {
    try {
      await read(kept("tokens").split(".").map(Number), unpack(kept("strokes")));
      drawPaper();
      drawState();
    } catch (error) {
      failed(error);
    }
  }

  const retyped = settled(500, begin);

  function failed(error) {
    stop();
    status.textContent = error.message;
    status.style.setProperty("color", "var(--warm)");
  }

  const save = () => keep({ tokens: state.written.map(({ id }) => id).join("."), strokes: pack(state.written), by_hand: state.written.flatMap(({ hand }, i) => (hand ? [i] : [])).join() });

  // ---------------------------------------------------------------- drawing

  const all = () => [...state.given, ...state.written];

  function chip(one, i) {
    const bits = one.p === undefined ? 0 : one.p > 0 ? Math.min(8, -Math.log2(one.p)) : 8;
    const line = one.piece.endsWith("\n");
    const text = one.piece === "" ? shown(one.name) : one.piece.replaceAll("\n", "⏎\n");
    return h("span", { role: "button", tabindex: i ? -1 : 0, data: { token: i, drawn: !one.prompt }, "aria-label": `${shown(one.name)}${one.p === undefined ? "" : `, ${percent(one.p)}`}`, "aria-pressed": String(i === state.chosen), title: one.p === undefined ? "" : percent(one.p),
      style: { background: `color-mix(in srgb, var(--warm) ${Math.round(one.prompt ? 0 : 7.5 * bits)}%, transparent)`, "border-bottom": one.prompt ? "2px solid var(--line)" : one.hand ? "2px solid var(--accent)" : false, cursor: "pointer", "border-radius": "2px", color: line ? "var(--soft)" : false },
      onpointerenter: () => hold(i), onfocus: () => hold(i), onblur: () => { state.held = state.chosen; }, onclick: () => choose(i) }, text);
  }

  function drawPaper() {
    fill(paper, all().map(chip));
    if (state.chosen ?? all().length) point(state.chosen ?? all().length - 1);
  }

  function drawState() {
    go.textContent = state.writing ? "stop" : state.written.length ? "continue" : "write";
    go.disabled = state.ended === "The text is full.";
    status.style.removeProperty("color");
    status.textContent = state.writing ? "writing …" : state.ended || "";
    const log = (list) => list.filter(({ log_p }) => log_p !== undefined).map(({ log_p }) => log_p);
    const perplexity = (list) => (log(list).length ? Math.exp(-log(list).reduce((a, b) => a + b, 0) / log(list).length).toPrecision(3) : "–");
    const card = (value, label, name) => h("li", { data: { card: name } }, h("b", value), h("span", label));
    fill(numbers, card(String(state.written.length), "tokens written", "written"), card(perplexity(all()), "perplexity of the text", "perplexity"), card(perplexity(state.written), "of what was written", "own"), card(state.rate ? state.rate.toPrecision(3) : "–", "tokens/s drawn", "rate"), card(String(state.seed), "seed", "seed"));
    drawCommands();
  }

  function drawCommands() {
    const options = SETTINGS.filter(([name, , , , , usual]) => values[name] !== usual).map(([name]) => ` --${name.replace("_", "-")} ${values[name]}`).join("");
    const line = `engram sample ${run.includes("/") ? run : `runs/${run}`} --prompt $'${prompt.value.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replaceAll("\n", "\\n")}' --length ${length.input.value} --seed ${state.seed}${options}`;
    if (commands.dataset.line !== line) { commands.dataset.line = line; fill(commands, copyable("command line", line)); }
  }

  function point(i) {
    const one = all()[i];
    if (!one) return;
    const largest = Math.max(...(one.top ?? []).map(([, , p]) => p), 1e-9);
    const rows = (one.top ?? []).map(([id, name, p]) => {
      const drawn = id === one.id;
      const label = one.prompt ? h("span", { class: "mono" }, shown(name)) : button(shown(name), () => instead(i, id, p), { class: "small mono", "aria-label": `write ${shown(name)} instead`, "aria-pressed": String(drawn) });
      return [label, h("div", { class: "bar", style: { width: `${(100 * p) / largest}%`, background: drawn ? "var(--warm)" : "var(--accent)" } }), h("span", { data: { taken: drawn } }, `${percent(p)}${drawn ? (one.prompt ? " ← given" : one.hand ? " ← yours" : " ← drawn") : ""}`)];
    });
    const outside = one.top && !one.top.some(([id]) => id === one.id) && h("p", { class: "small" }, one.p > 0 ? `«${shown(one.name)}» was number ${one.rank}, with ${percent(one.p)}.` : `«${shown(one.name)}» could not have been drawn.`);
    fill(detail, h("h3", { style: { "margin-top": 0 } }, `Token ${i}: «${shown(one.name)}»`),
      one.top ? h("div", { class: "bars", data: { alternatives: i } }, rows) : h("p", "Nothing comes before it."), outside,
      one.top && h("p", { class: "soft small", style: { "margin-top": ".5rem" } }, one.prompt ? "Given, not drawn: what the model itself would have said here." : `${one.hand ? "Chosen by hand from" : "Drawn from"} ${one.among} token${one.among === 1 ? "" : "s"}, at ${said(one.settings)}. Click another to write on with it.`),
      !one.prompt && h("div", { class: "row" }, button("cut here", () => cut(i), { class: "small" }), button("cut here and write on", () => { cut(i); write(); }, { class: "small" })));
  }

  const said = (used) => SETTINGS.map(([, label, , , , usual, show], k) => (k === 0 || used[k] !== usual ? `${label} ${show(used[k])}` : null)).filter(Boolean).join(", ");

  // ---------------------------------------------------------------- what a person does

  // While a token is pointed at, what is newly written does not take its place below.
  function hold(i) {
    state.held = i;
    point(i);
  }

  function choose(i) {
    [state.chosen, state.held] = [i, i];
    paper.querySelectorAll("[aria-pressed=true]").forEach((one) => one.setAttribute("aria-pressed", "false"));
    paper.children[i]?.setAttribute("aria-pressed", "true");
    if (i >= state.given.length) stop();
    point(i);
    detail.scrollIntoView({ block: "nearest" });
  }

  function walk(event) {
    const now = [...paper.children].indexOf(document.activeElement);
    const to = { ArrowLeft: now - 1, ArrowRight: now + 1, Home: 0, End: paper.children.length - 1 }[event.key];
    if (event.key === "Enter" || event.key === " ") choose(now);
    else if (to === undefined || !paper.children[to]) return;
    else { paper.children[now].tabIndex = -1; paper.children[to].tabIndex = 0; paper.children[to].focus(); }
    event.preventDefault();
  }

  function cut(i) {
    stop();
    state.written = state.written.slice(0, i - state.given.length);
    [state.chosen, state.held, state.ended] = [null, null, false];
    drawPaper();
    drawState();
    fill(detail);
  }

  // Another token in this place, and on from there; what it was drawn from stays what it was.
  function instead(i, id, p) {
    const place = i - state.given.length;
    const one = state.written[place];
    cut(i);
    renamed({ ...one, id, p }, id === one.id).then(() => { drawPaper(); point(i); write(); }, failed);
  }

  // What the new token adds to the text, and what the model itself thinks of it, is for the model to say.
  async function renamed(one, same) {
    if (same) { state.written.push(one); return; }
    const tokens = [...state.written, one];
    let last = null;
    await reading("generation.read", { run, step, prompt: prompt.value, tokens: tokens.map(({ id }) => id), strokes: strokes(tokens) }, (part) => { last = part.read.at(-1) ?? last; });
    state.written.push({ ...last, settings: one.settings, hand: true });
  }

  if (kept("tokens")) taken();
  else begin();
  return () => { pen.stop(); reading.stop(); clearTimeout(state.timer); };
}

// Attention: every head on one's own text; switch heads off, edit weights, patch from another text, and see what is predicted.

import { button, choice, copyable, fill, h, settled, slider } from "../dom.js";
import { keep, kept } from "../lab.js";
import { channel, unpacked } from "../link.js";
import { arcRow } from "./attention/arcs.js";
import { percent, shown } from "./attention/colours.js";
import { headGrid } from "./attention/heads.js";
import { headMap } from "./attention/map.js";
import { prediction } from "./attention/prediction.js";

const WHAT = { head: "this head's output", attention: "this layer's attention", stream: "the stream after this layer" };

// Changes in the address: o,layer,head; e,layer,head,asks,answers,weight; p,what,layer,head,token
const pack = (changes) => changes.map((one) => [one.kind[0], ...one.with].join(",")).join(";");
function unpack(text) {
  const kinds = { o: "off", e: "edit", p: "patch" };
  return text.split(";").filter(Boolean).map((one) => {
    const [kind, ...given] = one.split(",");
    return { kind: kinds[kind], with: given.map((part) => (part in WHAT ? part : Number(part))) };
  }).filter((one) => one.kind);
}

export function mount(holder, { run, step }) {
  const same = kept("of", run) === run;  // what was set for another model says nothing of this one
  if (!same) keep({ head: "", place: "", changes: "" });
  keep({ of: run });
  const state = { place: Number(kept("place", "-1")), token: null, cell: null, changes: unpack(kept("changes")), answer: null, now: null };
  [state.layer, state.head] = kept("head", "-1,-1").split(",").map(Number);
  const [latest, effects] = [channel(), channel()];
  const changed = settled(40, look);

  const text = h("textarea", { name: "text", rows: 2, spellcheck: "false", "aria-label": "text", value: kept("text"), oninput: () => typed() });
  const second = h("textarea", { name: "second", rows: 2, spellcheck: "false", "aria-label": "second text", value: kept("second"), oninput: () => { keep({ second: second.value }); changed(); } });
  const chips = h("div", { role: "group", "aria-label": "tokens", style: { "line-height": 2, margin: ".5rem 0 .2rem" } });
  const status = h("p", { role: "status", class: "small" });
  const grid = headGrid({ choose: pressed, toggle: toggleHead });
  const map = headMap({ choose: chooseCell, hover: point, nudge: (by) => setWeight(weight() + by), undo: forgetCell });
  const arcs = arcRow({ hover: point, choose: choosePlace });
  const [title, editing, predicted, changeList, other, commands, effectLine] = ["h3", "div", "div", "div", "p", "div", "p"].map((name) => h(name));
  title.style.setProperty("margin-top", "0");
  const strength = slider({ label: "weight", name: "weight", low: 0, high: 1, step: 0.01, value: 0, show: percent, change: (value) => setWeight(value) });
  const mode = choice({ label: "a click on a head", name: "mode", options: [["enlarge", "enlarges it"], ["off", "switches it off or on"]], value: "enlarge", change: () => {} });
  const offButton = button("switch this head off", () => toggleHead(state.answer.layer, state.answer.head), { "aria-pressed": "false" });
  const what = choice({ label: "take", name: "what", options: Object.entries(WHAT), value: "head", change: () => {} });
  const at = choice({ label: "at", name: "at", options: [["-1", "every token"]], value: "-1", change: () => {} });

  fill(holder,
    text, chips, status,
    h("div", { class: "halves", style: { "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 21rem), 1fr))" } },
      h("div", h("h3", { style: { "margin-top": 0 } }, "Heads"), grid.grid,
        h("p", { class: "soft small", style: { "margin-top": ".5rem" } }, "Rows are layers, columns heads; bright is much attention. Arrow keys walk, Enter enlarges, O switches off."),
        h("div", { class: "row" }, mode, button("which heads matter?", measure)), effectLine),
      h("div", { class: "enlarged" }, title, h("div", { class: "row", style: { margin: ".3rem 0" } }, offButton, button("whole layer off", () => toggleLayer(state.answer.layer))), h("div", { class: "scroll" }, map.canvas), editing),
      h("div", { class: "panel" }, predicted, changeList)),
    h("figure", { style: { "margin-top": "1rem" } }, arcs.holder, h("figcaption", { class: "small" }, "Point at a token: blue arcs above go to those it asks, orange ones below come from those that ask it; a dot is attention to itself. Click a token to predict there.")),
    h("details", { open: Boolean(second.value) }, h("summary", "Patch from another sentence"),
      h("p", { class: "soft small" }, "Write a second text of as many tokens, and put what the model computed for it in place of what it computes here: if the prediction follows, that is where the difference was."),
      second, other, h("div", { class: "row" }, what, at, button("patch", patch, { class: "main" }))),
    commands);

  // ---------------------------------------------------------------- asking

  async function look() {
    save();
    const of = (kind) => state.changes.filter((one) => one.kind === kind).map((one) => one.with);
    try {
      show(await latest("attention", { run, step, text: text.value, layer: state.layer, head: state.head, place: state.place, off: of("off"), edits: of("edit"), second: second.value, patches: of("patch") }));
    } catch (error) {
      status.textContent = error.message;
      status.style.setProperty("color", "var(--warm)");
    }
  }

  function show(answer) {
    if (!text.value) text.value = answer.text;
    state.answer = answer;
    state.now = unpacked(answer.now);
    if (state.cell && Math.max(...state.cell) >= answer.tokens.length) state.cell = null;
    if (state.token >= answer.tokens.length) state.token = null;
    status.style.removeProperty("color");
    status.textContent = `${answer.tokens.length} tokens${answer.left ? `; ${answer.left} more are not read` : ""}.`;
    grid.show(answer, isOff);
    title.textContent = `Layer ${answer.layer}, head ${answer.head}${isOff(answer.layer, answer.head) ? " (off)" : ""}`;
    title.title = answer.habit;
    offButton.setAttribute("aria-pressed", isOff(answer.layer, answer.head));
    offButton.textContent = isOff(answer.layer, answer.head) ? "switch this head on" : "switch this head off";
    fill(predicted, prediction(answer));
    drawChips();
    drawHead();
    drawEditing();
    drawChanges();
    drawPatch();
    drawCommands();
  }

  const save = () => keep({ head: state.layer < 0 ? "" : `${state.layer},${state.head}`, place: state.place < 0 ? "" : state.place, changes: pack(state.changes) });

  function typed() {
    keep({ text: text.value });
    state.place = -1;
    state.cell = null;
    state.changes = state.changes.filter((one) => one.kind === "off" || (one.kind === "patch" && one.with[3] < 0));  // the others are of tokens that were
    forgetEffects();
    changed();
  }

  // ---------------------------------------------------------------- drawing

  function drawHead() {
    const { answer, now } = state;
    const edits = state.changes.filter((one) => one.kind === "edit" && one.with[0] === answer.layer && one.with[1] === answer.head).map((one) => ({ asks: one.with[2], answers: one.with[3] }));
    map.draw(now, answer.tokens, { cell: state.cell, token: state.token, edits, causal: answer.kind === "gpt" });
    arcs.draw(now, answer.tokens, state.token);
    shade();
  }

  function drawChips() {
    const { answer } = state;
    const focused = [...chips.children].indexOf(document.activeElement);
    fill(chips, answer.tokens.map((token, i) => h("button", { type: "button", class: "mono", data: { token: i }, "aria-pressed": String(i === answer.place), "aria-label": `token ${i}: ${shown(token)}`, style: { padding: "0 .32rem", margin: "0 2px 2px 0", "border-width": "1px 1px 4px 1px" }, onpointerenter: () => point(i), onpointerleave: () => point(null), onfocus: () => point(i), onblur: () => point(null), onclick: () => choosePlace(i) }, shown(token))));
    if (focused >= 0) chips.children[focused]?.focus();
  }

  // Chips as dark as the token pointed at attends to them; their lower edge as orange as they attend to it.
  function shade() {
    [...chips.children].forEach((chip, i) => {
      const [to, from] = state.token === null ? [0, 0] : [state.now.at(state.token, i), state.now.at(i, state.token)];
      if (chip.getAttribute("aria-pressed") === "true") chip.style.removeProperty("background");
      else chip.style.setProperty("background", `color-mix(in srgb, var(--accent) ${Math.round(75 * Math.sqrt(to))}%, var(--paper))`);
      chip.style.setProperty("border-bottom-color", `color-mix(in srgb, var(--warm) ${Math.round(100 * Math.sqrt(from))}%, var(--line))`);
    });
  }

  function drawEditing() {
    const { cell, answer, now } = state;
    if (!cell) {
      fill(editing, h("p", { class: "soft small" }, `This head ${answer.habit}. Click a cell to set its weight: the rest of the row shares what is left.`));
      return;
    }
    if (document.activeElement !== strength.input) strength.set(now.at(...cell));
    const edited = findEdit(cell);
    if (!strength.isConnected) fill(editing, strength, h("p", { class: "small" }));
    strength.querySelector("label").textContent = `«${shown(answer.tokens[cell[0]])}» asks «${shown(answer.tokens[cell[1]])}»`;
    fill(editing.lastChild, edited ? [`Was ${percent(unpacked(answer.was).at(...cell))}. `, button("undo this edit", forgetCell, { class: "small" })] : "Move the slider, or press + and − on the map.");
  }

  function drawChanges() {
    const { tokens } = state.answer;
    const said = { off: ([l, i]) => `${l}·${i} off`, edit: ([l, i, m, t, w]) => `${l}·${i} «${shown(tokens[m] ?? "?")}»→«${shown(tokens[t] ?? "?")}» ${percent(w)}`, patch: ([kind, l, i, token]) => `${kind === "head" ? `${l}·${i}` : `${kind} ${l}`} patched${token < 0 ? "" : ` at «${shown(tokens[token] ?? "?")}»`}` };
    fill(changeList, state.changes.length > 0 && [
      h("div", { class: "row", role: "list", "aria-label": "changes" }, state.changes.map((one) => h("span", { role: "listitem" }, button(`${said[one.kind](one.with)} ×`, () => drop(one), { class: "small", "aria-label": `undo ${said[one.kind](one.with)}` })))),
      h("div", { class: "row", style: { "margin-top": ".5rem" } }, button("undo the last", () => drop(state.changes.at(-1)), { class: "small" }), button("undo all", () => { state.changes = []; look(); }, { class: "small" }))]);
  }

  function drawPatch() {
    const { answer } = state;
    const chosen = at.select.value;
    fill(at.select, h("option", { value: "-1" }, "every token"), answer.tokens.map((token, i) => h("option", { value: String(i) }, `${i}: ${shown(token)}${answer.second[i] !== undefined && answer.second[i] !== token ? ` ← ${shown(answer.second[i])}` : ""}`)));
    at.select.value = [...at.select.options].some((one) => one.value === chosen) ? chosen : "-1";
    const said = answer.obstacle || (answer.second.length ? `${answer.second.length} tokens, as many as above.` : `It takes ${answer.tokens.length} tokens.`);
    fill(other, h("span", { style: { color: answer.obstacle ? "var(--warm)" : "var(--soft)" } }, said), " ", answer.second.map((token, i) => h("span", { class: "mono", style: { color: token === answer.tokens[i] ? "var(--soft)" : "var(--warm)" } }, `${shown(token)} `)));
    other.className = "small";
  }

  function drawCommands() {
    const { answer } = state;
    const quoted = `"${answer.text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`;
    const where = run.includes("/") ? run : `runs/${run}`;
    const code = `import engram, torch\nmodel = engram.load("${where}")\nx = torch.tensor([model.tokeniser.encode(${quoted})])\ndef change(heads):  # batch × heads × tokens × width\n    heads[:, ${answer.head}] = 0\n    return heads\nwith engram.watch(model, "*attention.weights", replace={"blocks.${answer.layer}.attention.heads": change}) as seen:\n    logits = model(x)`;
    const open = commands.querySelector("details")?.open;
    fill(commands, h("details", { open }, h("summary", "The same in Python"), copyable("Python", code)));
  }

  // ---------------------------------------------------------------- what a person does

  const find = (kind, given, length = given.length) => state.changes.find((one) => one.kind === kind && given.every((part, i) => i >= length || one.with[i] === part));
  const isOff = (layer, head) => Boolean(find("off", [layer, head]));
  const findEdit = ([m, t]) => find("edit", [state.answer.layer, state.answer.head, m, t]);
  const weight = () => (state.cell ? findEdit(state.cell)?.with[4] ?? state.now.at(...state.cell) : 0);

  function point(token) {
    if (!state.answer || token === state.token) return;
    state.token = token;
    drawHead();
  }

  function pressed(layer, head) {
    if (mode.select.value === "off") { toggleHead(layer, head); return; }
    [state.layer, state.head] = [layer, head];
    look();
  }

  function choosePlace(i) {
    state.place = i;
    forgetEffects();
    look();
  }

  function toggleHead(layer, head) {
    const was = find("off", [layer, head]);
    if (was) { drop(was); return; }
    state.changes.push({ kind: "off", with: [layer, head] });
    look();
  }

  function toggleLayer(layer) {
    const all = Array.from({ length: state.answer.heads }, (_, head) => head);
    const left = all.filter((head) => !isOff(layer, head));
    if (left.length) left.forEach((head) => state.changes.push({ kind: "off", with: [layer, head] }));
    else state.changes = state.changes.filter((one) => one.kind !== "off" || one.with[0] !== layer);
    look();
  }

  function chooseCell(cell) {
    state.cell = cell;
    drawHead();
    drawEditing();
  }

  function setWeight(value) {
    if (!state.cell) return;
    const rounded = Math.round(100 * Math.max(0, Math.min(1, value))) / 100;
    const was = findEdit(state.cell);
    if (was) was.with[4] = rounded;
    else state.changes.push({ kind: "edit", with: [state.answer.layer, state.answer.head, ...state.cell, rounded] });
    [state.layer, state.head] = [state.answer.layer, state.answer.head];
    changed();
  }

  function forgetCell() {
    const was = state.cell && findEdit(state.cell);
    if (!was) return;
    strength.input.blur();
    drop(was);
  }

  function drop(one) {
    state.changes = state.changes.filter((other) => other !== one);
    look();
  }

  function patch() {
    const given = [what.select.value, state.answer.layer, state.answer.head, Number(at.select.value)];
    if (!find("patch", given)) state.changes.push({ kind: "patch", with: given });
    look();
  }

  async function measure() {
    const found = [];
    effectLine.className = "small";
    effectLine.textContent = "Each head is switched off in turn …";
    try {
      const { target } = await effects("attention.effects", { run, step, text: text.value, place: state.place }, (part) => { found.push(part); grid.effects(found); });
      const best = [...found].sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect)).slice(0, 3).map(({ layer, head, effect }) => `${layer}·${head} (${effect >= 0 ? "+" : "−"}${Math.abs(effect).toPrecision(2)})`);
      effectLine.textContent = `For «${shown(target)}», in log p: ${best.join(", ")} matter most. Blue heads help, orange ones stand in the way.`;
    } catch (error) {
      effectLine.textContent = error.message;
    }
  }

  function forgetEffects() {
    effects.stop();
    effectLine.textContent = "";
    if (state.answer) grid.effects([]);
  }

  const resized = new ResizeObserver(settled(100, () => { if (state.answer) arcs.draw(state.now, state.answer.tokens, state.token); }));
  resized.observe(holder);
  look();
  return () => { latest.stop(); effects.stop(); resized.disconnect(); };
}

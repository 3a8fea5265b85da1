// The instruments: all of them, or one.

import { button, choice, fill, h, notice } from "../dom.js";
import { keep, kept, visit } from "../lab.js";
import { ask, follow } from "../link.js";

export async function show(holder, name) {
  const { instruments, systems } = await ask("systems");
  if (!name) {
    fill(holder, h("h1", "Instruments"), h("p", { class: "soft" }, "Things to touch: each answers at once."),
      h("div", { class: "grid" }, Object.entries(instruments).map(([key, one]) => h("a", { class: "tile", href: `/instruments/${key}` }, h("b", one.title), h("span", one.said)))));
    return undefined;
  }
  const about = instruments[name];
  if (!about) throw new Error(`There is no instrument «${name}».`);
  const { mount } = await import(`../instruments/${name}.js`);
  const body = h("div", { class: "instrument", data: { instrument: name } });
  fill(holder, h("h1", about.title), h("p", { class: "soft" }, about.said, " ", about.recipes.map((one) => [" ", h("a", { href: `/systems/${one}` }, systems.find((row) => row.name === one)?.title ?? one)])), body);
  return about.opens ? withRun(body, about, mount) : mount(body, {});
}

// Let a person choose a run, or a folder with a checkpoint, and give the instrument what was chosen.
function withRun(body, about, mount) {
  const bar = h("div", { class: "row" });
  const inner = h("div");
  fill(body, bar, inner);
  let leave = () => {};
  let known = "";
  let step = Number(kept("step", "-1"));

  async function open(source) {
    leave();
    leave = () => {};
    fill(inner);
    if (!source) return;
    keep({ run: source });
    try {
      leave = (await mount(inner, { run: source, step })) ?? (() => {});
    } catch (error) {
      fill(inner, h("p", error.message));
    }
  }

  function offer(runs) {
    const fitting = runs.filter((run) => about.recipes.includes(run.recipe) && run.checkpoints.length);
    const now = JSON.stringify(fitting.map((run) => [run.name, run.checkpoints]));
    if (now === known) return;
    const first = known === "";
    known = now;
    const chosen = kept("run") || fitting[0]?.name || "";
    const listed = fitting.some((run) => run.name === chosen) || !chosen ? [] : [[chosen, chosen]];
    const select = choice({ label: "model", name: "run", value: chosen, options: [...fitting.map((run) => [run.name, `${run.name} (${run.title} on ${run.data})`]), ...listed], change: (value) => { step = -1; keep({ step: "" }); known = "x"; open(value); } });
    const checkpoints = fitting.find((run) => run.name === chosen)?.checkpoints ?? [];
    const steps = choice({ label: "checkpoint", name: "step", value: String(step), options: [["-1", "newest"], ...checkpoints.map((one) => [String(one), `step ${one}`])], change: (value) => { step = Number(value); keep({ step: value === "-1" ? "" : value }); open(kept("run") || chosen); } });
    const path = button("a folder …", () => { const typed = prompt("Folder of a Hugging Face checkpoint on this machine"); if (typed) { known = "x"; step = -1; keep({ step: "" }); open(typed); } }, { class: "small" });
    fill(bar, select, checkpoints.length > 1 && steps, path, !fitting.length && begin());
    if (first || !inner.hasChildNodes()) open(chosen);
  }

  function begin() {
    return h("div", { class: "panel" }, h("p", "There is no model yet that this instrument opens. "), h("div", { class: "row" }, about.recipes.slice(0, 3).map((recipe) => [
      button(`Train ${recipe} now`, async () => { const { name } = await ask("start", { recipe, preset: "small" }); visit(`/systems/${recipe}?run=${name}`); }, { class: "main" }),
      button(`tiny ${recipe}, in seconds`, async () => { const { name } = await ask("start", { recipe, preset: "tiny" }); notice(`${name} begins; it appears here as soon as it is there.`, "good"); })])));
  }

  const stop = follow("runs", {}, ({ runs }) => offer(runs));
  return () => { stop(); leave(); };
}

// List of the instruments, or one instrument.

import { button, dropdown, fill, h, notice } from "../dom.js";
import { setQuery, getQuery, navigate } from "../lab.js";
import { request, subscribe } from "../socket.js";

export async function show(holder, name) {
  const { instruments, systems } = await request("systems");
  if (!name) {
    fill(
      holder,
      h("h1", "Instruments"),
      h("p", { class: "soft" }, "Interactive pages of single systems."),
      h(
        "div",
        { class: "grid" },
        Object.entries(instruments).map(([key, one]) =>
          h(
            "a",
            { class: "tile", href: `/instruments/${key}` },
            h("b", one.title),
            h("span", one.about),
          ),
        ),
      ),
    );
    return undefined;
  }
  const about = instruments[name];
  if (!about) throw new Error(`There is no instrument "${name}".`);
  const { mount } = await import(`../instruments/${name}/instrument.js`);
  const body = h("div", { class: "instrument", data: { instrument: name } });
  fill(
    holder,
    h("h1", about.title),
    h(
      "p",
      { class: "soft" },
      about.about,
      " ",
      about.recipes.map((one) => [
        " ",
        h("a", { href: `/systems/${one}` }, systems.find((row) => row.name === one)?.title ?? one),
      ]),
    ),
    body,
  );
  return about.needs_run ? withRun(body, about, mount) : mount(body, {});
}

// Choose a run, or the folder of a checkpoint, and mount the instrument with it.
function withRun(body, about, mount) {
  const bar = h("div", { class: "row" });
  const inner = h("div");
  fill(body, bar, inner);
  let leave = () => {};
  let listed = "";
  let step = Number(getQuery("step", "-1"));

  async function open(source) {
    leave();
    leave = () => {};
    fill(inner);
    if (!source) return;
    setQuery({ run: source });
    try {
      leave = (await mount(inner, { run: source, step })) ?? (() => {});
    } catch (error) {
      fill(inner, h("p", error.message));
    }
  }

  function update(runs) {
    const fitting = runs.filter(
      (run) => about.recipes.includes(run.recipe) && run.checkpoints.length,
    );
    const now = JSON.stringify(fitting.map((run) => [run.name, run.checkpoints]));
    if (now === listed) return;
    const first = listed === "";
    listed = now;
    const chosen = getQuery("run") || fitting[0]?.name || "";
    const other = fitting.some((run) => run.name === chosen) || !chosen ? [] : [[chosen, chosen]];
    const select = dropdown({
      label: "model",
      name: "run",
      value: chosen,
      options: [
        ...fitting.map((run) => [run.name, `${run.name} (${run.title} on ${run.data})`]),
        ...other,
      ],
      change: (value) => {
        step = -1;
        setQuery({ step: "" });
        listed = "x";
        open(value);
      },
    });
    const checkpoints = fitting.find((run) => run.name === chosen)?.checkpoints ?? [];
    const steps = dropdown({
      label: "checkpoint",
      name: "step",
      value: String(step),
      options: [["-1", "newest"], ...checkpoints.map((one) => [String(one), `step ${one}`])],
      change: (value) => {
        step = Number(value);
        setQuery({ step: value === "-1" ? "" : value });
        open(getQuery("run") || chosen);
      },
    });
    const folder = button(
      "folder …",
      () => {
        const path = prompt("Folder of a Hugging Face checkpoint on this machine");
        if (path) {
          listed = "x";
          step = -1;
          setQuery({ step: "" });
          open(path);
        }
      },
      { class: "small" },
    );
    fill(bar, select, checkpoints.length > 1 && steps, folder, !fitting.length && trainPanel());
    if (first || !inner.hasChildNodes()) open(chosen);
  }

  function trainPanel() {
    return h(
      "div",
      { class: "panel" },
      h("p", "There is no run yet that this instrument can open. "),
      h(
        "div",
        { class: "row" },
        about.recipes.slice(0, 3).map((recipe) => [
          button(
            `Train ${recipe}`,
            async () => {
              const { name } = await request("start", { recipe, preset: "small" });
              navigate(`/systems/${recipe}?run=${name}`);
            },
            { class: "main" },
          ),
          button(`Train a tiny ${recipe} (seconds)`, async () => {
            const { name } = await request("start", { recipe, preset: "tiny" });
            notice(`${name} has started; it appears here after its first checkpoint.`, "good");
          }),
        ]),
      ),
    );
  }

  const stop = subscribe("runs", {}, ({ runs }) => update(runs));
  return () => {
    stop();
    leave();
  };
}

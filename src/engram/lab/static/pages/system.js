// Page of one system: summary, equations, settings, and a live view of one of its runs.

import { button, fill, h, mathml } from "../dom.js";
import { setQuery, getQuery } from "../lab.js";
import { request, subscribe } from "../socket.js";
import { newRun } from "./new_run.js";
import { runView } from "./run_view.js";

export async function show(holder, name) {
  const system = await request("system", { name });
  const [{ instruments }, data] = await Promise.all([request("systems"), request("data")]);
  const run = h("section", { class: "run", hidden: true });
  const runButtons = h("div", { class: "row" });
  let leave = () => {};
  let shown = "";

  async function open(chosen) {
    if (shown === chosen) return;
    leave();
    shown = chosen;
    setQuery({ run: chosen });
    run.hidden = !chosen;
    if (chosen) leave = runView(run, chosen, system);
    mark();
  }

  const mark = () =>
    [...runButtons.querySelectorAll("button[data-run]")].forEach((one) =>
      one.setAttribute("aria-pressed", one.dataset.run === shown),
    );
  fill(
    holder,
    h("h1", system.title),
    h("p", system.summary),
    system.instruments.length > 0 &&
      h(
        "p",
        system.instruments.map((one) => [
          h("a", { class: "button", href: `/instruments/${one}` }, `⌁ ${instruments[one].title}`),
          " ",
        ]),
      ),
    equations(system),
    newRun(system, data, (started) => {
      open(started);
      run.scrollIntoView({ block: "start" });
    }),
    runButtons,
    run,
  );

  const stop = subscribe("runs", {}, ({ runs }) => {
    const matching = runs.filter(
      (one) => one.recipe === name || (!one.recipe && one.name.startsWith(`${name}-`)),
    );
    fill(
      runButtons,
      matching.length > 0 && h("span", { class: "soft" }, "Runs:"),
      matching
        .slice(0, 12)
        .map((one) =>
          button(one.name, () => open(one.name), { class: "small", data: { run: one.name } }),
        ),
    );
    mark();
    if (!shown) open(getQuery("run") || matching[0]?.name || "");
  });
  return () => {
    stop();
    leave();
  };
}

function equations(system) {
  const modules = system.modules.filter((one) => one.equations.length);
  const block = ({ module, equations: list, title }, i) => {
    const rows = list.map((one) => [
      h("div", { class: "left" }, one.mathml ? mathml(one.mathml) : h("span", one.text)),
      h("div", { class: "soft" }, one.words),
      one.lines.length
        ? h(
            "a",
            {
              href: `/source/${module}?lines=${one.lines.join(",")}`,
              title: `line ${one.lines.join(", ")} of ${module}`,
            },
            `(${one.number})`,
          )
        : h("span", { class: "soft" }, `(${one.number})`),
    ]);
    return h(
      "details",
      { open: i === 0 },
      h("summary", title),
      h("div", { class: "equations" }, rows),
      h("p", { class: "small" }, h("a", { href: `/source/${module}` }, `${module}`)),
    );
  };
  return h("section", h("h2", "Equations"), modules.map(block));
}

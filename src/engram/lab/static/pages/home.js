// All systems by parts of the course, and the latest runs.

import { fill, h } from "../dom.js";
import { request, subscribe } from "../socket.js";
import { state } from "./runs.js";

const ABOUT = {
  foundations: "backpropagation, optimizers, convolutional networks",
  neurons: "spiking neurons, synapses, networks and the NEF",
  memory: "Hopfield networks, Boltzmann machines, predictive coding",
  sequences: "recurrent networks and word embeddings",
  generative: "autoencoders, GANs and diffusion",
  robustness: "adversarial attacks and adversarial training",
  transformers: "attention, language and vision models",
};

export async function show(holder) {
  const { systems, instruments } = await request("systems");
  const recent = h("div", { class: "grid" });
  const search = h("input", {
    type: "search",
    placeholder: "Find a system …",
    "aria-label": "find a system",
    oninput: () => filter(),
  });
  const names = [...new Set(systems.map((one) => one.part))];
  const parts = names.map((part) =>
    h(
      "section",
      { class: "course" },
      h("h2", part),
      h("p", { class: "soft" }, ABOUT[part] ?? ""),
      h(
        "div",
        { class: "grid" },
        systems.filter((one) => one.part === part).map((one) => tile(one, instruments)),
      ),
    ),
  );
  const latest = h("section", { hidden: true }, h("h2", "Latest runs"), recent);
  fill(
    holder,
    h("h1", "Systems"),
    h(
      "p",
      { class: "soft" },
      "Each page has the equations with links to the code that computes them, settings, live curves and figures. Choose a system and press Run.",
    ),
    search,
    latest,
    parts,
  );

  function filter() {
    const text = search.value.toLowerCase();
    for (const one of holder.querySelectorAll("[data-system]"))
      one.hidden =
        !one.textContent.toLowerCase().includes(text) && !one.dataset.system.includes(text);
    for (const part of parts)
      part.hidden = [...part.querySelectorAll("[data-system]")].every((one) => one.hidden);
  }

  return subscribe("runs", {}, ({ runs }) => {
    latest.hidden = runs.length === 0;
    fill(
      recent,
      runs
        .slice(0, 6)
        .map((run) =>
          h(
            "a",
            { class: "tile", href: address(run) },
            h("b", run.name, " ", state(run)),
            h("span", summary(run)),
          ),
        ),
    );
  });
}

export const address = (run) =>
  `/systems/${run.recipe || run.name.replace(/-\d+$/, "")}?run=${encodeURIComponent(run.name)}`;

export const summary = (run) =>
  run.damaged ??
  [
    run.title,
    run.data,
    ...Object.entries(run.metrics ?? {})
      .slice(0, 2)
      .map(([name, value]) => `${name} ${value}`),
  ]
    .filter(Boolean)
    .join(" · ");

function tile(one, instruments) {
  const titles = one.instruments.map((name) => instruments[name].title).join(", ");
  return h(
    "a",
    { class: "tile", href: `/systems/${one.name}`, data: { system: one.name } },
    h("b", one.title),
    h("span", one.summary),
    titles && h("span", { class: "small" }, `⌁ ${titles}`),
  );
}

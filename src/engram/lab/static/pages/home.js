// The systems as a map of the course, and what was done lately.

import { fill, h } from "../dom.js";
import { ask, follow } from "../link.js";
import { state } from "./runs.js";

const ABOUT = {
  foundations: "from the chain rule to deep networks", neurons: "cells that fire, alone and together", memory: "energy, recall and dreams",
  sequences: "what comes next, and what words mean", generation: "making pictures out of noise", robustness: "attack and defence", transformers: "attention, and what is built of it",
};

export async function show(holder) {
  const { systems, instruments } = await ask("systems");
  const recent = h("div", { class: "grid" });
  const search = h("input", { type: "search", placeholder: "Find a system …", "aria-label": "find a system", oninput: () => sift() });
  const kinds = [...new Set(systems.map((one) => one.kind))];
  const courses = kinds.map((kind) => h("section", { class: "course" },
    h("h2", kind), h("p", { class: "soft" }, ABOUT[kind] ?? ""),
    h("div", { class: "grid" }, systems.filter((one) => one.kind === kind).map((one) => tile(one, instruments)))));
  const lately = h("section", { hidden: true }, h("h2", "Lately"), recent);
  fill(holder, h("h1", "Every system of the course"),
    h("p", { class: "soft" }, "Each page has its equations beside the code that computes them, controls, live curves and figures. Choose one, and press Run."),
    search, lately, courses);

  function sift() {
    const wanted = search.value.toLowerCase();
    for (const one of holder.querySelectorAll("[data-system]")) one.hidden = !one.textContent.toLowerCase().includes(wanted) && !one.dataset.system.includes(wanted);
    for (const course of courses) course.hidden = [...course.querySelectorAll("[data-system]")].every((one) => one.hidden);
  }

  return follow("runs", {}, ({ runs }) => {
    lately.hidden = runs.length === 0;
    fill(recent, runs.slice(0, 6).map((run) => h("a", { class: "tile", href: address(run) },
      h("b", run.name, " ", state(run)), h("span", summary(run)))));
  });
}

export const address = (run) => `/systems/${run.recipe || run.name.replace(/-\d+$/, "")}?run=${encodeURIComponent(run.name)}`;

export const summary = (run) => run.damaged ?? [run.title, run.data, ...Object.entries(run.said ?? {}).slice(0, 2).map(([name, value]) => `${name} ${value}`)].filter(Boolean).join(" · ");

function tile(one, instruments) {
  const touch = one.instruments.map((name) => instruments[name].title).join(", ");
  return h("a", { class: "tile", href: `/systems/${one.name}`, data: { system: one.name } }, h("b", one.title), h("span", one.said), touch && h("span", { class: "small" }, `⌁ ${touch}`));
}

// The code of a module, at the line that an equation is computed by.

import { fill, h } from "../dom.js";
import { ask } from "../link.js";

export async function show(holder, module) {
  const { code } = await ask("source", { name: module });
  const wanted = new Set((new URLSearchParams(location.search).get("lines") ?? "").split(",").map(Number));
  const lines = code.split("\n").map((text, i) => h("div", { id: `L${i + 1}`, class: wanted.has(i + 1) ? "here" : false, data: { line: i + 1 } }, text || " "));
  fill(holder, h("h1", module), h("div", { class: "code", tabindex: "0" }, lines));
  if (!location.hash) queueMicrotask(() => holder.querySelector(".here")?.scrollIntoView({ block: "center" }));
}

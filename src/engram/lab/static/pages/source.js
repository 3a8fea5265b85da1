// Source code of a module, scrolled to the lines that compute an equation.

import { fill, h } from "../dom.js";
import { request } from "../socket.js";

export async function show(holder, module) {
  const { code } = await request("source", { name: module });
  const marked = new Set(
    (new URLSearchParams(location.search).get("lines") ?? "").split(",").map(Number),
  );
  const lines = code
    .split("\n")
    .map((text, i) =>
      h(
        "div",
        { id: `L${i + 1}`, class: marked.has(i + 1) ? "here" : false, data: { line: i + 1 } },
        text || " ",
      ),
    );
  fill(holder, h("h1", module), h("div", { class: "code", tabindex: "0" }, lines));
  if (!location.hash)
    queueMicrotask(() => holder.querySelector(".here")?.scrollIntoView({ block: "center" }));
}

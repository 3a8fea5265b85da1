// Every head of every layer as a small map; one tab stop, arrow keys between heads.

import { fill, h } from "../../dom.js";

export function headGrid({ choose, toggle }) {
  const grid = h("div", { role: "group", "aria-label": "heads", style: { display: "grid", gap: "3px" } });
  let cells = [];
  let picture = 0;

  function build(layers, heads) {
    if (cells.length === layers && cells[0]?.length === heads) return;
    cells = Array.from({ length: layers }, (_, layer) => Array.from({ length: heads }, (_, head) => cell(layer, head)));
    grid.style.setProperty("grid-template-columns", `max-content repeat(${heads}, minmax(1.4rem, 5.5rem))`);
    fill(grid, h("span"), cells[0].map((_, head) => h("span", { class: "soft small", style: { "text-align": "center" } }, head)),
      cells.map((row, layer) => [h("span", { class: "soft small", style: { "align-self": "center", "padding-right": ".3rem" } }, layer), row]));
  }

  function cell(layer, head) {
    const canvas = h("canvas", { style: { width: "100%", display: "block", "image-rendering": "pixelated", "aspect-ratio": "1" } });
    const strip = h("span", { style: { position: "absolute", left: 0, bottom: 0, width: "100%", height: 0 } });
    const made = h("button", { type: "button", tabindex: -1, data: { head: `${layer}.${head}` }, style: { position: "relative", padding: "1px", "border-radius": ".2rem", "line-height": 0, overflow: "hidden" }, onclick: () => choose(layer, head), onkeydown: (event) => keys(event, layer, head) }, canvas, strip);
    return Object.assign(made, { canvas, strip });
  }

  function keys(event, layer, head) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (moves[event.key]) {
      const next = cells[layer + moves[event.key][0]]?.[head + moves[event.key][1]];
      if (next) { cells.flat().forEach((one) => { one.tabIndex = -1; }); next.tabIndex = 0; next.focus(); }
    } else if (event.key.toLowerCase() === "o") toggle(layer, head);
    else return;
    event.preventDefault();
  }

  function mark({ layer, head }, off) {
    cells.forEach((row, l) => row.forEach((one, i) => {
      const [chosen, silent] = [l === layer && i === head, off(l, i)];
      one.setAttribute("aria-label", `layer ${l}, head ${i}${silent ? ", off" : ""}${chosen ? ", enlarged" : ""}`);
      one.setAttribute("title", `layer ${l}, head ${i}${silent ? ", off" : ""}`);
      one.dataset.off = silent;
      one.canvas.style.opacity = silent ? 0.15 : 1;
      one.style.setProperty("background", silent ? "repeating-linear-gradient(45deg, var(--warm) 0 2px, transparent 2px 7px)" : "var(--card)");
      one.style.setProperty("border", chosen ? "2px solid var(--accent)" : "2px solid transparent");
      if (!grid.contains(document.activeElement)) one.tabIndex = chosen ? 0 : -1;
    }));
  }

  async function show(answer, off) {
    const mine = (picture += 1);
    build(answer.layers, answer.heads);
    mark(answer, off);
    const image = new Image();
    image.src = answer.maps;
    await image.decode();
    if (mine !== picture) return;
    const count = answer.tokens.length;
    cells.forEach((row, l) => row.forEach(({ canvas }, i) => {
      canvas.width = canvas.height = count;
      canvas.getContext("2d").drawImage(image, i * (count + answer.gap), l * (count + answer.gap), count, count, 0, 0, count, count);
    }));
  }

  // How much each head helps (blue) or hinders (orange), as a strip at its foot.
  function effects(list) {
    const largest = Math.max(1e-9, ...list.map(({ effect }) => Math.abs(effect)));
    cells.flat().forEach((one) => one.strip.style.setProperty("height", "0"));
    for (const { layer, head, effect } of list) {
      const { strip } = cells[layer][head];
      strip.style.setProperty("height", `${Math.max(4, (30 * Math.abs(effect)) / largest)}%`);
      strip.style.setProperty("background", effect >= 0 ? "var(--accent)" : "var(--warm)");
      cells[layer][head].setAttribute("title", `layer ${layer}, head ${head}: log p ${effect >= 0 ? "−" : "+"}${Math.abs(effect).toPrecision(2)} without it`);
    }
  }

  return { grid, show, effects };
}

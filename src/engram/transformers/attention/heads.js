// Small maps of all heads of all layers; one tab stop, arrow keys between heads.

import { fill, h, loadBitmap } from "../../dom.js";

export function headGrid({ choose, toggle }) {
  const grid = h("div", {
    role: "group",
    "aria-label": "heads",
    style: { display: "grid", gap: "3px" },
  });
  let cells = [];
  let drawing = 0;

  function build(layers, heads) {
    if (cells.length === layers && cells[0]?.length === heads) return;
    cells = Array.from({ length: layers }, (_, layer) =>
      Array.from({ length: heads }, (_, head) => cell(layer, head)),
    );
    grid.style.setProperty(
      "grid-template-columns",
      `max-content repeat(${heads}, minmax(1.4rem, 5.5rem))`,
    );
    fill(
      grid,
      h("span"),
      cells[0].map((_, head) =>
        h("span", { class: "soft small", style: { "text-align": "center" } }, head),
      ),
      cells.map((row, layer) => [
        h(
          "span",
          { class: "soft small", style: { "align-self": "center", "padding-right": ".3rem" } },
          layer,
        ),
        row,
      ]),
    );
  }

  function cell(layer, head) {
    const canvas = h("canvas", {
      style: {
        width: "100%",
        display: "block",
        "image-rendering": "pixelated",
        "aspect-ratio": "1",
      },
    });
    const effectBar = h("span", {
      style: { position: "absolute", left: 0, bottom: 0, width: "100%", height: 0 },
    });
    const element = h(
      "button",
      {
        type: "button",
        tabindex: -1,
        data: { head: `${layer}.${head}` },
        style: {
          position: "relative",
          padding: "1px",
          "border-radius": ".2rem",
          "line-height": 0,
          overflow: "hidden",
        },
        onclick: () => choose(layer, head),
        onkeydown: (event) => onKey(event, layer, head),
      },
      canvas,
      effectBar,
    );
    return Object.assign(element, { canvas, effectBar });
  }

  function onKey(event, layer, head) {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (moves[event.key]) {
      const next = cells[layer + moves[event.key][0]]?.[head + moves[event.key][1]];
      if (next) {
        cells.flat().forEach((element) => {
          element.tabIndex = -1;
        });
        next.tabIndex = 0;
        next.focus();
      }
    } else if (event.key.toLowerCase() === "o") toggle(layer, head);
    else return;
    event.preventDefault();
  }

  function mark({ layer, head }, off) {
    cells.forEach((row, l) =>
      row.forEach((element, i) => {
        const [chosen, isOff] = [l === layer && i === head, off(l, i)];
        element.setAttribute(
          "aria-label",
          `layer ${l}, head ${i}${isOff ? ", off" : ""}${chosen ? ", enlarged" : ""}`,
        );
        element.setAttribute("title", `layer ${l}, head ${i}${isOff ? ", off" : ""}`);
        element.dataset.off = isOff;
        element.canvas.style.opacity = isOff ? 0.15 : 1;
        element.style.setProperty(
          "background",
          isOff
            ? "repeating-linear-gradient(45deg, var(--warm) 0 2px, transparent 2px 7px)"
            : "var(--card)",
        );
        element.style.setProperty(
          "border",
          chosen ? "2px solid var(--accent)" : "2px solid transparent",
        );
        if (!grid.contains(document.activeElement)) element.tabIndex = chosen ? 0 : -1;
      }),
    );
  }

  async function show(response, off) {
    const own = (drawing += 1);
    build(response.layers, response.heads);
    mark(response, off);
    const image = await loadBitmap(response.maps);
    if (own !== drawing) return;
    const count = response.tokens.length;
    cells.forEach((row, l) =>
      row.forEach(({ canvas }, i) => {
        canvas.width = canvas.height = count;
        canvas
          .getContext("2d")
          .drawImage(
            image,
            i * (count + response.gap),
            l * (count + response.gap),
            count,
            count,
            0,
            0,
            count,
            count,
          );
      }),
    );
  }

  // Effect of each head on the prediction as a bar at its foot: blue helps, orange hinders.
  function effects(list) {
    const largest = Math.max(1e-9, ...list.map(({ effect }) => Math.abs(effect)));
    cells.flat().forEach((element) => element.effectBar.style.setProperty("height", "0"));
    for (const { layer, head, effect } of list) {
      const { effectBar } = cells[layer][head];
      effectBar.style.setProperty("height", `${Math.max(4, (30 * Math.abs(effect)) / largest)}%`);
      effectBar.style.setProperty("background", effect >= 0 ? "var(--accent)" : "var(--warm)");
      cells[layer][head].setAttribute(
        "title",
        `layer ${layer}, head ${head}: log p ${effect >= 0 ? "−" : "+"}${Math.abs(effect).toPrecision(2)} without it`,
      );
    }
  }

  return { grid, show, effects };
}

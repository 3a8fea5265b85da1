// Input of an attack: a test image, a drawing or an image file.

import { fileDrop, saveImage } from "../../image_input.js";
import { button, h } from "../../dom.js";
import { pixelCanvas } from "../../drawing.js";

const MAX_DRAWABLE = 64; // width of images that can be drawn, in pixels

// `changed` is called when another image is shown, `changedSoon` while one draws.
export function inputImage({ about, state, changed, changedSoon }) {
  const [channels, height, width] = about.shape;
  const isDrawable = channels === 1 && Math.max(height, width) <= MAX_DRAWABLE;
  const board =
    isDrawable &&
    pixelCanvas({
      width,
      height,
      values: state.image ?? undefined,
      label: "user image",
      size: 240,
      change: (values, ended) => {
        state.image = values.slice();
        if (ended) saveImage("image", state.image);
        changedSoon();
      },
    });
  const upload = fileDrop({
    label: "image file",
    shape: about.shape,
    onImage: (values) => {
      state.image = values;
      if (board) board.set(values);
      saveImage("image", values);
      changed();
    },
  });
  const tests = testImages(about.count, state, changed);
  const own = h("div", isDrawable && board.element, upload);
  const source = (name, text) =>
    button(
      text,
      () => {
        state.source = name;
        changed();
      },
      { data: { source: name } },
    );
  const sources = [
    about.count > 0 && source("test", "test image"),
    source("user", isDrawable ? "draw your own" : "your own image"),
  ].filter(Boolean);

  return {
    elements: [
      h("div", { class: "row" }, sources),
      h("div", { style: { margin: ".7rem 0" } }, tests, own),
    ],
    empty: isDrawable ? "Draw something, or choose a file." : "Choose a file, or drop one.",
    showSource() {
      for (const one of sources)
        one.setAttribute("aria-pressed", String(one.dataset.source === state.source));
      tests.style.display = state.source === "test" ? "" : "none";
      own.style.display = state.source === "user" ? "" : "none";
    },
    stop: () => board && board.stop(),
  };
}

function testImages(count, state, changed) {
  const number = h("input", {
    type: "number",
    name: "item",
    min: 0,
    max: count - 1,
    value: state.item,
    "aria-label": "index of the test image",
    style: { width: "6.5rem" },
    oninput: () => select(Number(number.value), false),
  });
  const select = (item, writes = true) => {
    if (!count || !Number.isInteger(item)) return;
    state.item = Math.min(count - 1, Math.max(0, item));
    if (writes) number.value = state.item;
    changed();
  };
  return h(
    "div",
    { class: "row" },
    button("◀", () => select(state.item - 1), { "aria-label": "previous image" }),
    number,
    button("▶", () => select(state.item + 1), { "aria-label": "next image" }),
    button("random", () => select(Math.floor(Math.random() * count))),
  );
}

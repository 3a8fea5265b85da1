// Cosine similarities of some test images, the columns, with their captions or the typed texts, the rows.

import { button, fill, h, debounce, slider } from "../../dom.js";
import { tile } from "../../drawing.js";
import { setQuery, getQuery } from "../../lab.js";
import { channel, decodeArray } from "../../socket.js";
import { signed } from "./zero_shot.js";

// first: number of the first image; labels(): the typed texts; select(item) is called when an image is clicked
export function similarityMatrix({ run, step, about, first, labels, select }) {
  const latest = channel();
  const state = {
    first,
    count: Number(getQuery("count", "6")),
    with: getQuery("with", "captions"),
  };
  const table = h("div", { class: "scroll" });
  const status = h("p", { role: "status", class: "soft small" });
  const setting = (options) =>
    slider({
      ...options,
      step: 1,
      value: state[options.name],
      change: (value) => {
        state[options.name] = value;
        updateSoon();
      },
    });
  const firstSlider = setting({
    label: "first image",
    name: "first",
    low: 0,
    high: Math.max(0, about.count - 1),
  });
  const countSlider = setting({ label: "images", name: "count", low: 1, high: 12 });
  const sources = [
    ["captions", "their own captions"],
    ["labels", "the texts above"],
  ].map(([name, text]) =>
    button(
      text,
      () => {
        state.with = name;
        update();
      },
      { class: "small", data: { with: name } },
    ),
  );
  const element = h(
    "section",
    h("h2", "Every image with every text"),
    h(
      "p",
      { class: "soft small" },
      "A cell is the cosine similarity of an image and a text; the best text of each image is framed. With their own captions, the true ones are marked ✓.",
    ),
    h(
      "div",
      { class: "row" },
      h("div", { style: { width: "14rem" } }, firstSlider),
      h("div", { style: { width: "10rem" } }, countSlider),
      sources,
    ),
    status,
    table,
  );

  async function update() {
    setQuery(state);
    sources.forEach((one) =>
      one.setAttribute("aria-pressed", String(one.dataset.with === state.with)),
    );
    const params = {
      run,
      step,
      item: state.first,
      count: state.count,
      labels: usesLabels() ? labels() : [""],
    };
    try {
      const matrix = await latest("clip.matrix", params);
      const { items, captions, texts, cosine } = matrix;
      const right = cosine.filter((row, b) => texts[largest(row)] === captions[b]).length;
      status.textContent =
        state.with === "captions"
          ? `${right} of ${items.length} images are most similar to their own caption.`
          : `${texts.length} texts, ${items.length} images.`;
      fill(table, buildTable(matrix, about.shape, select));
    } catch (error) {
      status.textContent = error.message;
      fill(table);
    }
  }
  const updateSoon = debounce(80, update);
  const usesLabels = () => state.with === "labels";

  return { element, update, usesLabels, stop: latest.stop };
}

const largest = (values) => values.indexOf(Math.max(...values));

// Texts are rows, because they are long, and images are columns.
function buildTable({ items, x, captions, texts, cosine }, shape, select) {
  const pixels = decodeArray(x).values;
  const size = shape[0] * shape[1] * shape[2];
  const [low, high] = [Math.min(...cosine.flat()), Math.max(...cosine.flat())];
  const heads = items.map((item, b) =>
    imageHead(pixels.subarray(b * size, (b + 1) * size), shape, item, captions[b], select),
  );
  const rows = texts.map((text, k) =>
    h(
      "tr",
      h("th", { scope: "row", style: { "min-width": "9rem", "max-width": "22rem" } }, text),
      cosine.map((row, b) =>
        cell(row[k], (row[k] - low) / (high - low || 1), {
          isBest: k === largest(row),
          isOwn: text === captions[b],
        }),
      ),
    ),
  );
  return h(
    "table",
    { style: { width: "auto" } },
    h("thead", h("tr", h("td"), heads)),
    h("tbody", rows),
  );
}

// The image of a column, as a button that selects it.
function imageHead(values, [, height, width], item, caption, select) {
  const label = `test image ${item}: ${caption}`;
  return h(
    "th",
    { scope: "col", style: { padding: ".2rem", "text-align": "center" } },
    button([tile({ width, height, values, label, size: 56 })], () => select(item), {
      class: "small",
      title: caption,
      "aria-label": `look at test image ${item}`,
      style: { padding: "2px", width: "62px" },
    }),
  );
}

const cell = (cosine, part, { isBest, isOwn }) =>
  h(
    "td",
    {
      class: "number",
      style: {
        "text-align": "center",
        padding: ".3rem",
        background: `color-mix(in srgb, var(--accent) ${Math.round(75 * part)}%, transparent)`,
        outline: isBest ? "2px solid var(--warm)" : "none",
        "outline-offset": "-2px",
      },
    },
    signed(cosine),
    isOwn && " ✓",
  );

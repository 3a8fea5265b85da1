// CLIP: an image, texts that are typed, and how well each text describes the image.

import { encodePixels, discImage, fileDrop, saveImage, loadImage } from "../../image_input.js";
import { button, fill, uniqueId, h, debounce } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";
import { channel } from "../../socket.js";
import { similarityMatrix } from "./similarity_matrix.js";
import { zeroShotView } from "./zero_shot.js";

export async function mount(holder, { run, step }) {
  const latest = channel();
  const about = await latest("clip.about", { run, step });
  const [channels, height, width] = about.shape;
  const own = loadImage("image", channels * height * width);
  const clampItem = (item) => Math.max(0, Math.min(about.count - 1, item)); // another model may have fewer images
  const initial = about.labels.join("\n");
  const state = {
    item: clampItem(Number(getQuery("item")) || 0),
    source: about.count ? getQuery("source", "test") : "own",
    own: own ?? (about.count ? null : discImage(about.shape)),
  };

  const id = uniqueId("labels");
  const texts = h("textarea", {
    id,
    name: "labels",
    rows: 7,
    spellcheck: "false",
    maxlength: 5000,
    oninput: () => updateSoon(),
  });
  texts.value = getQuery("labels", initial);
  const labels = () => {
    const lines = texts.value.split("\n").map((line) => line.trim());
    return [...new Set(lines.filter(Boolean))];
  };
  const images = about.count > 0 && testImages(about.count, state.item, showItem);
  const fileInput = fileDrop({
    label: "your own image",
    shape: about.shape,
    crops: about.crops,
    onImage: (values) => {
      Object.assign(state, { own: values, source: "own" });
      saveImage("image", values);
      update();
    },
  });
  const view = zeroShotView(about);
  const matrix =
    about.count > 0 &&
    similarityMatrix({
      run,
      step,
      about,
      labels,
      first: clampItem(Number(getQuery("first")) || 0),
      select: (item) => {
        images.show(item);
        scrollTo({ top: 0 });
      },
    });
  fill(
    holder,
    h(
      "div",
      { class: "two" },
      h(
        "div",
        { class: "panel" },
        h("label", { for: id }, "texts, one a line"),
        texts,
        h("div", { style: { margin: ".7rem 0" } }, images && images.element),
        fileInput,
      ),
      view.element,
    ),
    matrix && matrix.element,
  );

  function showItem(item) {
    Object.assign(state, { item, source: "test" });
    update();
  }

  async function update() {
    const choices = labels();
    setQuery({
      labels: texts.value === initial ? "" : texts.value,
      item: state.item,
      source: state.source,
    });
    if (!choices.length) {
      view.showMissing();
      return;
    }
    const given =
      state.source === "own" && state.own
        ? { pixels: encodePixels(state.own) }
        : { item: state.item };
    try {
      const { captions } = await latest(
        "clip",
        { run, step, labels: choices, ...given },
        (part) => {
          if (!part.p) return;
          view.show(part, choices, state.item);
          view.showCommand(commandLine(run, choices, state.source));
        },
      );
      view.showCaptions(captions);
    } catch (error) {
      view.showError(error.message);
    }
    if (matrix && matrix.usesLabels()) matrix.update();
  }
  const updateSoon = debounce(250, update);

  update();
  if (matrix) matrix.update();
  return () => {
    latest.stop();
    if (matrix) matrix.stop();
  };
}

// Choice of one of `count` test images; choose(item) is called with its number.
function testImages(count, item, choose) {
  const number = h("input", {
    type: "number",
    name: "item",
    min: 0,
    max: count - 1,
    value: item,
    "aria-label": "number of the test image",
    style: { width: "6.5rem" },
    oninput: () => set(Number(number.value)),
  });

  function set(value) {
    if (!Number.isInteger(value)) return;
    item = Math.min(count - 1, Math.max(0, value));
    choose(item);
  }

  function show(value) {
    set(value);
    number.value = item;
  }

  const element = h(
    "div",
    { class: "row" },
    button("◀", () => show(item - 1), { "aria-label": "previous image" }),
    number,
    button("▶", () => show(item + 1), { "aria-label": "next image" }),
    button("random", () => show(Math.floor(Math.random() * count))),
  );
  return { element, show };
}

function commandLine(run, labels, source) {
  const quoted = labels.map((one) => `'${one.replaceAll("'", "'\\''")}'`).join(" ");
  const where = run.includes("/") ? run : `runs/${run}`;
  return `engram sample ${where} --labels ${quoted}${source === "own" ? " --image FILE" : ""}`;
}

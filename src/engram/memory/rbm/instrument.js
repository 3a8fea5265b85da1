// Restricted Boltzmann machine: draw an image, corrupt it, and watch a Gibbs chain from it, step by step.

import { copyable, fill, h, mathml, debounce } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";
import { request } from "../../socket.js";
import { GibbsChain } from "./gibbs_chain.js";
import { hiddenUnits } from "./hidden_units.js";
import { InputImage } from "./input_image.js";

const MAX_URL_PIXELS = 1024; // of a drawing, in the address
const COLUMNS = {
  display: "grid",
  gap: "1.2rem 1.6rem",
  "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 20rem), 1fr))",
  "align-items": "start",
};

const digits = (values) =>
  Array.from(values, (value) => Math.round(15 * value).toString(16)).join("");
const pixels = (text) => [...text].map((digit) => parseInt(digit, 16) / 15);

export async function mount(holder, { run, step }) {
  const model = { run, step };
  const about = await request("rbm", model);
  const set = storedSettings(about);
  const common = () => ({
    ...model,
    temperature: set.temperature * about.temperature,
    seed: set.seed,
  });
  const wrong = h("p", { role: "alert", hidden: true });
  const failed = (error) => Object.assign(wrong, { hidden: false, textContent: error.message });
  const shared = { about, set, common, failed };
  const hidden = hiddenUnits({ ...shared, model });
  const input = new InputImage({
    ...shared,
    model,
    changed,
    remember,
    reseeded: () => {
      remember();
      chain.restart();
    },
  });
  const chain = new GibbsChain({
    ...shared,
    given: () => input.board.values,
    showHidden: hidden.show,
    remember,
    infer: () => infer(),
  });
  fill(
    holder,
    wrong,
    h("div", { style: COLUMNS }, input.element, chain.element, hidden.element),
    h(
      "div",
      { class: "scroll" },
      about.equations.map(({ text, mathml: marked }) =>
        h("p", marked ? mathml(marked) : h("code", text)),
      ),
    ),
    copyable(
      "samples and inpainting from the command line",
      `engram sample runs/${run}\nengram sample runs/${run} --show inpainting`,
    ),
  );

  const infer = debounce(60, async () =>
    chain.compare(await hidden.infer([...input.board.values])),
  );

  // The input has changed: `ended` after a stroke.
  function changed(ended) {
    wrong.hidden = true;
    chain.reset();
    infer();
    if (!ended) return;
    remember();
    chain.restart();
  }

  function remember() {
    const { item, seed, clamp, temperature, pen, view } = set;
    const { values } = input.board;
    const drawing = values.length <= MAX_URL_PIXELS ? digits(values) : "";
    setQuery({ item, seed, clamp, temperature, pen, view, drawing });
  }

  const drawn = getQuery("drawing");
  if (drawn.length === about.shape.reduce((a, b) => a * b, 1)) {
    input.setBoard(pixels(drawn));
    changed(true);
  } else await input.take(set.item);
  return () => {
    input.stop();
    chain.pause();
    hidden.stop();
  };
}

// Settings in the URL.
const storedSettings = (about) => ({
  item: Number(getQuery("item", "0")),
  seed: Number(getQuery("seed", "0")),
  clamp: getQuery("clamp", "upper"),
  temperature: Number(getQuery("temperature", "1")),
  pen: getQuery("pen", about.shape[0] === 3 ? "color" : "gray"),
  view: getQuery("view", "probability"),
});

// Adversarial attacks: an image, an attack with a slider for eps, and the class probabilities before and after.

import { encodePixels, discImage, loadImage } from "../../image_input.js";
import { copyable, fill, h, debounce } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";
import { channel } from "../../socket.js";
import { attackSettings } from "./attack_settings.js";
import { attackResult } from "./attack_result.js";
import { inputImage } from "./input_image.js";
import { probabilityCurve } from "./probability_curve.js";

export async function mount(holder, { run, step }) {
  const latest = channel();
  const about = await latest("attack.about", { run, step });
  const state = storedSettings(about);
  const restartLater = debounce(60, restart);
  let changes = 0; // of the input and the settings
  const restartSoon = () => {
    changes++;
    result.fade();
    restartLater();
  };
  const input = inputImage({ about, state, changed: restart, changedSoon: restartSoon });
  const settings = attackSettings({
    about,
    state,
    changed: restart,
    changedSoon: restartSoon,
    epsChanged: () => {
      update();
      curve.markEps();
    },
  });
  const result = attackResult({ about, state });
  const curve = probabilityCurve({ about, state });
  const commands = h("div");

  const params = () => ({
    run,
    step,
    method: state.method,
    norm: state.norm,
    steps: state.steps,
    target: state.method === "minimal" ? -1 : state.target,
    seed: state.seed,
    ...(state.source === "user" ? { pixels: encodePixels(state.image) } : { item: state.item }),
  });
  const hasImage = () => state.source !== "user" || state.image !== null;

  function restart() {
    curve.reset();
    update();
    if (hasImage()) curve.update(params());
  }

  async function update() {
    remember();
    if (!hasImage()) {
      latest.stop();
      result.clear(input.empty);
      return;
    }
    result.fade();
    const before = changes;
    try {
      const found = await latest("attack", { ...params(), eps: state.eps[state.norm] });
      result.show(found);
      if (changes !== before) result.fade();
      curve.compare(found);
    } catch (error) {
      result.clear(error.message);
    }
  }

  function remember() {
    const { item, method, norm, steps, target, seed, source, eps } = state;
    setQuery({ item, method, norm, steps, target, seed: seed || "", source, ...eps });
    input.showSource();
    settings.showMethod();
    const name = run.includes("/") ? run : `runs/${run}`;
    const command = `engram attack ${name} --norm ${norm} --eps ${eps[norm]} --attack-steps ${steps}`;
    fill(commands, copyable("the same for many test images", command));
  }

  fill(holder, layout({ input, settings, result, curve, commands }));
  restart();
  return () => {
    result.stop();
    latest.stop();
    curve.stop();
    input.stop();
  };
}

const layout = ({ input, settings, result, curve, commands }) =>
  h(
    "div",
    { class: "two" },
    h("div", { class: "panel" }, input.elements, settings.elements),
    h(
      "div",
      settings.eps,
      result.elements,
      h("div", { class: "halves", style: { "margin-top": "1rem" } }, result.bars, curve.element),
      h(
        "p",
        { class: "soft small" },
        "The gradient of the loss says for every pixel which change increases it; an attack follows it as far as ε allows. Random noise of the same norm hardly changes the prediction: the direction matters.",
      ),
      commands,
    ),
  );

// Settings in the URL, within what the model allows.
function storedSettings({ count, classes, shape, max_eps }) {
  const number = (name, otherwise) => Number(getQuery(name, String(otherwise)));
  const target = number("target", -1);
  return {
    item: Math.max(0, Math.min(count - 1, number("item", 0) || 0)),
    method: getQuery("method", "pgd"),
    norm: getQuery("norm", "linf"),
    steps: number("steps", 20),
    target: target < classes.length ? target : -1,
    seed: number("seed", 0),
    source: count ? getQuery("source", "test") : "user",
    eps: {
      linf: number("linf", 0.1),
      l2: Math.min(max_eps.l2, number("l2", (max_eps.l2 / 5).toFixed(1))),
    },
    image:
      loadImage(
        "image",
        shape.reduce((a, b) => a * b, 1),
      ) ?? (count ? null : discImage(shape)),
  };
}

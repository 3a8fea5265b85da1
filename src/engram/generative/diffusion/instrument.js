// Diffusion sampling: scrub the trajectory from noise to images or points; compare two trajectories from the same noise.

import { button, dropdown, copyable, fill, h, debounce, prefersReducedMotion } from "../../dom.js";
import { setQuery, getQuery, queryWriter } from "../../lab.js";
import { request, decodeArray } from "../../socket.js";
import { imageStrip } from "./image_strip.js";
import { timeline } from "./timeline.js";
import { trajectory } from "./trajectory.js";

const [IMAGES, POINTS] = [8, 600];

export async function mount(holder, { run, step }) {
  fill(holder, h("p", { class: "soft" }, "Loading the model …"));
  const about = await request("diffusion.about", { run, step });
  const query = queryWriter();
  const count = about.is_image ? IMAGES : POINTS;
  let seed = Number(getQuery("seed", "0"));
  let comparing = getQuery("compare") === "1";
  let selected = Number(getQuery("image", "0")); // the image whose strip is shown
  let strips = [];

  const shared = {
    run,
    step,
    about,
    query,
    count,
    real: about.real && decodeArray(about.real),
    seed: () => seed,
    changed: () => showCaptions(),
    arrived: () => show(),
    select,
  };
  const [first, other] = defaultSettings(about);
  const sides = [
    trajectory(shared, { name: "A", prefix: "", defaults: first }),
    trajectory(shared, { name: "B", prefix: "b_", defaults: other }),
  ];
  const visible = () => (comparing ? sides : sides.slice(0, 1));
  const time = timeline({
    time: getQuery("t") === "" ? null : Number(getQuery("t")),
    timesteps: about.timesteps,
    trajectories: visible,
    changed: (t) => query.set({ t: t === null ? "" : t }),
    draw: () => show(),
  });
  const seedInput = h("input", {
    type: "number",
    name: "seed",
    min: 0,
    max: 999999,
    value: seed,
    "aria-label": "seed of the noise",
    style: { width: "6.5rem" },
    oninput: debounce(200, () => setSeed(Number(seedInput.value))),
  });
  const anotherSeed = button(
    "another seed",
    () => {
      seedInput.value = Math.floor(Math.random() * 1e6);
      setSeed(Number(seedInput.value));
    },
    { class: "small" },
  );
  const compare = h("input", {
    type: "checkbox",
    name: "compare",
    checked: comparing,
    onchange: () => {
      comparing = compare.checked;
      setQuery({ compare: comparing ? "1" : "" });
      arrange();
      if (comparing) sides[1].run();
      show();
    },
  });
  const level = h("p", { class: "soft small", data: { level: "" } });
  const [strip, stage, panels, captions] = [h("div"), h("div"), h("div"), h("div")];
  fill(
    holder,
    h(
      "div",
      { class: "two" },
      h(
        "div",
        { class: "panel" },
        h("div", { class: "row" }, h("label", "seed ", seedInput), anotherSeed),
        panels,
        h("label", compare, " compare with B, from the same noise"),
      ),
      h(
        "div",
        h(
          "div",
          { class: "row" },
          time.play,
          h("div", { style: { flex: "1", "min-width": "12rem" } }, time.scrub),
        ),
        level,
        stage,
        strip,
        captions,
      ),
    ),
  );

  function setSeed(value) {
    if (!Number.isInteger(value) || value < 0 || value > 2 ** 31) return;
    seed = value;
    query.set({ seed: seed || "" });
    visible().forEach((one) => one.run());
  }

  function select(image) {
    if (image < 0 || image >= count) return;
    selected = image;
    setQuery({ image: selected || "" });
    arrange();
    show();
  }

  function show() {
    if (!time.show()) return;
    const t = time.time() ?? 0;
    const [now] = visible()
      .map((one) => one.show(t))
      .filter(Boolean);
    if (now)
      level.textContent = `Signal level ${percent(now.signal)}, noise level ${percent(now.noise)}.`;
    strips.forEach((one) => one.draw(t));
  }

  function arrange() {
    fill(
      panels,
      visible().map((one) => one.controls),
    );
    sides[0].controls.querySelector("legend").textContent = comparing ? "A" : "sampler";
    fill(
      stage,
      visible().map((one) => canvasPair(one, about.is_image ? "images" : "points", comparing)),
    );
    if (about.is_image) arrangeStrips();
    showCaptions();
  }

  function arrangeStrips() {
    strips = visible().map((one) =>
      imageStrip({
        trajectory: one,
        image: selected,
        shape: about.shape,
        choose: (t) => {
          time.pause();
          time.move(t);
        },
      }),
    );
    const choice = dropdown({
      label: "trajectory of image",
      name: "image",
      options: Array.from({ length: count }, (_, i) => [String(i), String(i + 1)]),
      value: String(selected),
      change: (value) => select(Number(value)),
    });
    choice.select.style.width = "auto";
    fill(
      strip,
      choice,
      strips.map(({ canvas }, i) =>
        h(
          "figure",
          { style: { margin: "0 0 .6rem" } },
          comparing && h("figcaption", { class: "small" }, h("b", sides[i].name)),
          canvas,
        ),
      ),
    );
  }

  const showCaptions = () => fill(captions, describe(about, run, sides[0].settings));

  arrange();
  visible().forEach((one) => one.run());
  if (time.time() === null && !getQuery("seed") && !prefersReducedMotion()) time.start();
  return () => {
    time.pause();
    query.stop();
    sides.forEach((one) => one.stop());
  };
}

// Settings of A, and of B, which differs in one of them.
function defaultSettings({ sampler, steps, classes, guidance }) {
  const first = {
    sampler,
    steps: Math.max(10, steps),
    condition: classes.length ? "each" : "none",
    guidance,
  };
  return [first, classes.length ? { ...first, guidance: 3 } : { ...first, sampler: "ddpm" }];
}

// Noisy and predicted clean samples of a trajectory, side by side.
function canvasPair({ name, canvases, status }, kind, comparing) {
  const figure = (canvas, ...caption) =>
    h(
      "figure",
      { style: { margin: "0" } },
      h("figcaption", { class: "small" }, comparing && h("b", `${name} · `), caption),
      canvas,
    );
  return h(
    "div",
    h(
      "div",
      {
        class: "halves",
        style: {
          "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 15rem), 1fr))",
          "max-width": "56rem",
          gap: ".6rem 1.2rem",
        },
      },
      figure(canvases.x, `Noisy ${kind} (x`, h("sub", "t"), ")"),
      figure(canvases.x_0, "Predicted clean samples (x", h("sub", "0"), ")"),
    ),
    status,
  );
}

// The caption, and the equivalent command line.
function describe(about, run, { sampler, steps, condition, guidance }) {
  const flags =
    about.classes.length && condition !== "none"
      ? ` --guidance ${guidance}${condition === "each" ? "" : ` --label ${condition}`}`
      : "";
  const caption = about.is_image
    ? "At high noise the prediction is the mean of all images; then the class and the shape appear, then the details. Click an image for its trajectory."
    : "Gray: test points. Arrows: the score, the gradient of the log density, which points to the mean at first and to the nearest part of the shape later. Thin lines: trajectories of some points.";
  return [
    h("p", { class: "soft small" }, caption),
    copyable(
      "command line",
      `engram sample runs/${run} --sampler ${sampler} --sampler-steps ${steps}${flags}`,
    ),
  ];
}

const percent = (x) => `${Math.round(100 * x)} %`;

// Result of an attack: the verdict, the three images, and bars of the class probabilities before and after.

import { fill, h } from "../../dom.js";
import { tile } from "../../drawing.js";
import { decodeArray } from "../../socket.js";

const MAX_BARS = 10; // classes
const FADE_MS = 400; // until the verdict fades while a slow request is pending
const DIVERGING = ["#0072B2", "#f2f2f2", "#D55E00"];
const percent = (p) =>
  p > 0.0005 && p < 0.9995 ? `${(100 * p).toFixed(1)} %` : `${Math.round(100 * p)} %`;
const argmax = (values) => values.indexOf(Math.max(...values));

export function attackResult({ about, state }) {
  const verdict = h("p", {
    role: "status",
    class: "verdict",
    style: { "min-height": "3em", "font-size": "1.05rem" },
  });
  const images = h("div", {
    style: {
      display: "grid",
      gap: ".8rem",
      "grid-template-columns": "repeat(3, minmax(0, 12rem))",
    },
  });
  const bars = h("div", {
    class: "bars",
    role: "table",
    "aria-label": "probabilities before and after",
  });
  let fading = 0;

  function fade() {
    clearTimeout(fading);
    verdict.setAttribute("aria-busy", "true");
    fading = setTimeout(() => {
      verdict.style.opacity = 0.5;
    }, FADE_MS);
  }

  function unfade() {
    clearTimeout(fading);
    verdict.removeAttribute("aria-busy");
    verdict.style.opacity = 1;
  }

  function clear(text) {
    unfade();
    verdict.textContent = text;
    fill(images);
    fill(bars);
  }

  function show(found) {
    unfade();
    const norm =
      state.norm === "linf"
        ? `L∞ norm of the perturbation ${found.linf.toFixed(3)}`
        : `L2 norm of the perturbation ${found.l2.toFixed(2)}`;
    fill(
      verdict,
      describe(found, about.classes, state.method === "minimal" ? -1 : state.target),
      h("br"),
      h("span", { class: "soft small" }, `${norm}.`),
    );
    fill(images, imagesOf(found, about));
    fill(bars, barsOf(found, about.classes));
  }

  const legend = [
    ["var(--soft)", "before"],
    ["var(--warm)", "after"],
  ].map(([background, text]) => [square(background), ` ${text}  `]);
  return {
    elements: [verdict, images],
    bars: h("figure", h("figcaption", { class: "small" }, "Class probabilities: ", legend), bars),
    show,
    fade,
    clear,
    stop: unfade,
  };
}

const square = (background) =>
  h("span", {
    style: {
      display: "inline-block",
      width: ".8em",
      height: ".8em",
      background,
      "border-radius": ".15em",
    },
  });

function describe({ before, after, truth, label }, classes, target) {
  const [clean, attacked] = [argmax(before), argmax(after)];
  const under = `"${classes[attacked]}" (${percent(after[attacked])})`;
  if (truth >= 0 && clean !== truth)
    return `True "${classes[truth]}", predicted "${classes[clean]}" without an attack; under attack ${under}.`;
  const predicted = `Predicted "${classes[clean]}" (${percent(before[clean])}); under attack`;
  if (target >= 0)
    return attacked === target
      ? `${predicted} the target ${under}.`
      : `${predicted} ${under}, not yet the target "${classes[target]}".`;
  return `${predicted} ${attacked === label ? "still " : ""}${under}.`;
}

function imagesOf(found, { shape: [channels, height, width], classes }) {
  const x = decodeArray(found.x).values;
  const adversarial = decodeArray(found.adversarial).values;
  const perturbation = adversarial.map((value, i) => value - x[i]);
  const largest = Math.max(...perturbation.map(Math.abs));
  const framed = (caption, values, options = {}) =>
    h(
      "figure",
      { style: { margin: 0 } },
      h("figcaption", { class: "small" }, caption),
      tile({ width, height, values, label: caption, size: 190, ...options }),
    );
  const signed = (extent) => ({ range: [-extent, extent], tones: DIVERGING });
  const scale = (1 / largest).toPrecision(2).replace(/e\+?(\d+)/, "·10^$1");
  const magnified = `perturbation × ${scale}`;
  return [
    framed(`image: ${classes[found.truth >= 0 ? found.truth : argmax(found.before)]}`, x),
    framed(`adversarial: ${classes[argmax(found.after)]}`, adversarial),
    largest === 0
      ? framed("no perturbation", perturbation, signed(1))
      : channels === 1
        ? framed(magnified, perturbation, signed(largest))
        : framed(
            magnified,
            perturbation.map((d) => 0.5 + d / largest / 2),
          ),
  ];
}

// Rows of the most probable classes.
function barsOf({ before, after, label }, classes) {
  const all = [...before.keys()];
  const larger = (i) => Math.max(before[i], after[i]);
  const top =
    all.length <= MAX_BARS ? all : all.sort((a, b) => larger(b) - larger(a)).slice(0, MAX_BARS);
  const bar = (p, background) =>
    h("div", {
      class: "bar",
      style: { width: `${100 * p}%`, background, height: ".5rem", "margin-bottom": "1px" },
    });
  return top.map((i) => [
    h(
      "span",
      { role: "cell", style: { "font-weight": i === label ? 650 : 400 } },
      classes[i],
      i === label && " ✓",
    ),
    h("div", { role: "cell" }, bar(before[i], "var(--soft)"), bar(after[i], "var(--warm)")),
    h(
      "span",
      {
        role: "cell",
        class: "small",
        style: { "font-variant-numeric": "tabular-nums" },
        data: { class: classes[i] },
      },
      `${percent(before[i])} → ${percent(after[i])}`,
    ),
  ]);
}

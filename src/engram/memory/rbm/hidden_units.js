// Hidden units: how active each is, its weights, and the reconstruction from them.

import { fill, h } from "../../dom.js";
import { tile } from "../../drawing.js";
import { channel, decodeArray } from "../../socket.js";

const SIGNED = ["#d55e00", "--card", "#0072b2"];

export function hiddenUnits({ about, model, common, failed }) {
  const [, height, width] = about.shape;
  const size = { width, height };
  const latest = { infer: channel(), most: channel(), one: channel() };
  const map = activityMap(about.hidden, choose);
  const number = h("input", {
    type: "number",
    name: "unit",
    min: 0,
    max: about.hidden - 1,
    value: 0,
    style: { width: "5.5rem" },
    oninput: () => choose(Number(number.value)),
  });
  const most = h("div", { class: "row", style: { gap: ".4rem" } });
  const chosen = h("div");
  const back = tile({
    ...size,
    values: new Float32Array(about.shape.reduce((a, b) => a * b, 1)),
    label: "reconstruction",
    size: 90,
  });
  const status = h("p", { class: "small" });

  // The weights of some units: [[unit, values], …]
  async function weights(units, where) {
    const { filters } = await where("rbm.filters", { ...model, units });
    const { values } = decodeArray(filters);
    const each = values.length / units.length;
    return units.map((unit, i) => [unit, values.slice(i * each, (i + 1) * each)]);
  }

  async function choose(asked) {
    number.value = asked;
    const unit = Math.min(about.hidden - 1, Math.max(0, Math.floor(asked) || 0));
    try {
      const [[, values]] = await weights([unit], latest.one);
      fill(chosen, weightTile({ ...size, values, unit, size: 120 }));
    } catch (error) {
      failed(error);
    }
  }

  // Show the hidden units of an image; returns quantiles of the free energy of test images.
  async function infer(image) {
    try {
      const found = await latest.infer("rbm.infer", { ...common(), image });
      map.show(decodeArray(found.hidden).values);
      back.set(decodeArray(found.reconstruction).values);
      const [low, middle, high] = found.free_energy_quantiles.map((x) => x.toFixed(0));
      status.textContent = `The free energy of the drawing is ${found.free_energy.toFixed(0)}; of 90% of the test images it is between ${low} and ${high}, with a median of ${middle}.`;
      const active = await weights(found.most_active, latest.most);
      fill(
        most,
        active.map(([unit, values]) => unitButton(unit, { ...size, values }, choose)),
      );
      return found.free_energy_quantiles;
    } catch (error) {
      failed(error);
    }
    return null;
  }

  choose(0);
  return {
    infer,
    show: map.show,
    stop: () => Object.values(latest).forEach((one) => one.stop()),
    element: h(
      "section",
      h("h3", `Hidden units (${about.hidden})`),
      map.element,
      h(
        "div",
        { class: "row", style: { "margin-top": ".5rem" } },
        h("label", "unit ", number),
        chosen,
      ),
      h("h3", "Most active units"),
      h(
        "p",
        { class: "soft small" },
        "The hidden units that are more active than on test images, with their weights: blue is positive, orange negative.",
      ),
      most,
      h("h3", "Reconstruction"),
      h("div", { class: "row" }, back),
      status,
    ),
  };
}

// All hidden units as pixels of a square; choose(unit) is called when one is pressed.
function activityMap(count, choose) {
  const across = Math.ceil(Math.sqrt(count));
  const down = Math.ceil(count / across);
  const padded = (values) => Float32Array.from({ length: across * down }, (_, i) => values[i] ?? 0);
  const element = tile({
    width: across,
    height: down,
    values: padded([]),
    label: `${count} hidden units: bright is active`,
    size: 280,
  });
  element.classList.add("pixels");
  element.addEventListener("pointerdown", (event) => {
    const box = element.getBoundingClientRect();
    const row = Math.floor(((event.clientY - box.top) / box.height) * down);
    const column = Math.floor(((event.clientX - box.left) / box.width) * across);
    choose(Math.min(count - 1, Math.max(0, row * across + column)));
  });
  return { element, show: (values) => element.set(padded(values)) };
}

function weightTile({ unit, values, ...more }) {
  const extent = values.reduce((most, value) => Math.max(most, Math.abs(value)), 1e-12);
  return tile({
    values,
    label: `weights of hidden unit ${unit}`,
    range: [-extent, extent],
    tones: SIGNED,
    ...more,
  });
}

const unitButton = (unit, weights, choose) =>
  h(
    "button",
    {
      type: "button",
      onclick: () => choose(unit),
      style: { padding: ".2rem", "line-height": 1, width: "4.3rem" },
      "aria-label": `hidden unit ${unit}`,
    },
    weightTile({ unit, size: 56, ...weights }),
    h("span", { class: "small", style: { display: "block" } }, unit),
  );

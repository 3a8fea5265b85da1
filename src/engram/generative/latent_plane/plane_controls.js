// Controls of the map: which plane, its extent, what is shown; and the colors of the classes.

import { COLORS } from "../../charts.js";
import { button, dropdown, fill, h, slider } from "../../dom.js";
import { getQuery } from "../../lab.js";
import { byVariance } from "./plane.js";

const PLANES = {
  coordinates: "two coordinates",
  principal: "two principal components",
  random: "two random directions",
};

// set: called with changed settings; draw: called when images or points are shown or hidden
export function planeControls({ settings, query, set, draw }) {
  const bar = h("div", { class: "row" });
  const legend = h("div", { class: "row small" });
  const tick = (name) => {
    const box = h("input", {
      type: "checkbox",
      id: `show-${name}`,
      checked: getQuery(`hide_${name}`) !== "1",
      onchange: () => {
        query.set({ [`hide_${name}`]: box.checked ? "" : "1" });
        draw();
      },
    });
    return box;
  };
  const [images, points] = [tick("images"), tick("points")];

  function show(about) {
    fill(
      bar,
      planeDropdown(about, set),
      about.kind === "coordinates" &&
        about.latent_dim > 2 && [
          coordinateDropdown("x", "x_coordinate", about),
          coordinateDropdown("y", "y_coordinate", about),
        ],
      about.kind === "random" && button("another plane", () => set({ seed: settings.seed + 1 })),
      h("div", { style: { "min-width": "11rem" } }, extentSlider(settings, set)),
      about.is_image && h("label", images, " images"),
      about.has_encoder && h("label", points, " test samples"),
    );
    fill(legend, about.classes.slice(0, 20).map(classColor));
  }

  const coordinateDropdown = (label, name, about) =>
    dropdown({
      label,
      name,
      options: byVariance(about).map((i) => [String(i), `coordinate ${i + 1}`]),
      value: String(settings[name]),
      change: (value) => set({ [name]: Number(value) }),
    });

  return { bar, legend, show, shows: { images, points } };
}

function planeDropdown(about, set) {
  const isAvailable = ([kind]) =>
    kind === about.kind || (about.latent_dim > 1 && (kind !== "principal" || about.has_encoder));
  return dropdown({
    label: "plane",
    name: "plane",
    options: Object.entries(PLANES).filter(isAvailable),
    value: about.kind,
    change: (plane) => {
      const [x_coordinate, y_coordinate] = byVariance(about);
      set(plane === "coordinates" ? { plane, x_coordinate, y_coordinate } : { plane });
    },
  });
}

const extentSlider = (settings, set) =>
  slider({
    label: "extent of the map",
    name: "extent",
    low: 0.5,
    high: 6,
    step: 0.25,
    value: settings.extent,
    show: (x) => x.toFixed(2),
    change: (extent) => set({ extent }),
  });

const classColor = (name, k) =>
  h(
    "span",
    h("span", { "aria-hidden": "true", style: { color: COLORS[k % COLORS.length] } }, "● "),
    name,
  );

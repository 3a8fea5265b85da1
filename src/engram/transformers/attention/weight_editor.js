// Editor of one attention weight: a slider, and a button that undoes the edit.

import { button, fill, h, slider } from "../../dom.js";
import { decodeArray } from "../../socket.js";
import { percent, tokenLabel } from "./colors.js";

export function weightEditor({ change, undo }) {
  const holder = h("div");
  const note = h("p", { class: "small" });
  const strength = slider({
    label: "weight",
    name: "weight",
    low: 0,
    high: 1,
    step: 0.01,
    value: 0,
    show: percent,
    change,
  });

  // cell: [query, key], or null if none is chosen
  function draw({ cell, response, weights }, isEdited) {
    if (!cell) {
      fill(
        holder,
        h(
          "p",
          { class: "soft small" },
          `This head ${response.summary}. Click a cell to set its weight: the rest of the row is rescaled.`,
        ),
      );
      return;
    }
    if (document.activeElement !== strength.input) strength.set(weights.at(...cell));
    if (!strength.isConnected) fill(holder, strength, note);
    const [query, key] = cell.map((i) => tokenLabel(response.tokens[i]));
    strength.querySelector("label").textContent = `"${query}" attends to "${key}"`;
    fill(
      note,
      isEdited
        ? [
            `Was ${percent(decodeArray(response.weights_before).at(...cell))}. `,
            button("undo this edit", undo, { class: "small" }),
          ]
        : "Move the slider, or press + and − on the map.",
    );
  }

  return { holder, draw, blur: () => strength.input.blur() };
}

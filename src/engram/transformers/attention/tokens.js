// The tokens of the text in a row: point at one to see its attention, click it to predict there.

import { fill, h } from "../../dom.js";
import { tokenLabel } from "./colors.js";

export function tokenRow({ hover, choose }) {
  const holder = h("div", {
    role: "group",
    "aria-label": "tokens",
    style: { "line-height": 2, margin: ".5rem 0 .2rem" },
  });

  const chip = (token, i, position) =>
    h(
      "button",
      {
        type: "button",
        class: "mono",
        data: { token: i },
        "aria-pressed": String(i === position),
        "aria-label": `token ${i}: ${tokenLabel(token)}`,
        style: { padding: "0 .32rem", margin: "0 2px 2px 0", "border-width": "1px 1px 4px 1px" },
        onpointerenter: () => hover(i),
        onpointerleave: () => hover(null),
        onfocus: () => hover(i),
        onblur: () => hover(null),
        onclick: () => choose(i),
      },
      tokenLabel(token),
    );

  function draw({ tokens, position }) {
    const focused = [...holder.children].indexOf(document.activeElement);
    fill(
      holder,
      tokens.map((token, i) => chip(token, i, position)),
    );
    if (focused >= 0) holder.children[focused]?.focus();
  }

  // Background of a token: attention of the hovered token to it; lower edge: its attention to the hovered token.
  function shade(weights, hovered) {
    [...holder.children].forEach((one, i) => {
      const [to, from] =
        hovered === null ? [0, 0] : [weights.at(hovered, i), weights.at(i, hovered)];
      if (one.getAttribute("aria-pressed") === "true") one.style.removeProperty("background");
      else one.style.setProperty("background", mix("--accent", 75 * Math.sqrt(to), "--paper"));
      one.style.setProperty("border-bottom-color", mix("--warm", 100 * Math.sqrt(from), "--line"));
    });
  }

  return { holder, draw, shade };
}

const mix = (color, part, other) =>
  `color-mix(in srgb, var(${color}) ${Math.round(part)}%, var(${other}))`;

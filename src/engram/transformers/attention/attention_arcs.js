// Arcs between tokens. For one token: above, the tokens it attends to; below, those that attend to it. Otherwise: the
// largest weights, above.

import { fill, h } from "../../dom.js";
import { percent, tokenLabel } from "./colors.js";

const [MAX_HEIGHT, LOWER_SCALE, MAX_WIDTH, MIN_WEIGHT] = [120, 0.55, 9, 0.02];

export function arcRow({ hover, choose }) {
  const holder = h("div", { class: "scroll" });
  let availableWidth = 900;

  function draw(weights, tokens, token) {
    const count = tokens.length;
    availableWidth = holder.clientWidth || availableWidth;
    const slot = Math.max(13, Math.min(90, availableWidth / count));
    const labels = tokens.map((one) => {
      const text = tokenLabel(one);
      return text.length > 12 ? `${text.slice(0, 11)}…` : text;
    });
    const labelLength = Math.max(...labels.map((text) => text.length)) * 7.6 + 6;
    const rotated = labelLength > slot;
    const labelHeight = rotated ? labelLength : 20;
    const side = 22 + arcHeight(longestArc(weights, count) / count); // independent of the token, so that the layout stays
    const [width, height] = [slot * count, side * (1 + LOWER_SCALE) + labelHeight];
    const x = (i) => (i + 0.5) * slot;
    const arcs =
      token === null ? strongestArcs(weights, count) : arcsOfToken(weights, token, count);
    fill(
      holder,
      h(
        "svg",
        {
          viewBox: `0 0 ${width} ${height}`,
          width,
          height,
          role: "img",
          "aria-label":
            token === null
              ? "the largest attention weights"
              : `what "${tokenLabel(tokens[token])}" attends to, above, and what attends to it, below`,
          style: { display: "block" },
          onpointerleave: () => hover(null),
        },
        arcs.map(({ query, key, weight, up }) =>
          arc(
            x(query),
            x(key),
            up ? side : side + labelHeight,
            weight,
            up,
            Math.abs(query - key) / count,
            `"${tokenLabel(tokens[query])}" attends to "${tokenLabel(tokens[key])}": ${percent(weight)}`,
          ),
        ),
        labels.map((text, i) =>
          h(
            "g",
            {
              style: { cursor: "pointer" },
              onpointerenter: () => hover(i),
              onclick: () => choose(i),
            },
            h("rect", {
              x: i * slot,
              y: side,
              width: slot,
              height: labelHeight,
              fill: i === token ? "var(--shade)" : "transparent",
            }),
            h(
              "text",
              {
                x: x(i),
                y: side + labelHeight / 2,
                transform: rotated ? `rotate(-90 ${x(i)} ${side + labelHeight / 2})` : false,
                "text-anchor": "middle",
                "dominant-baseline": "central",
                "font-size": 12.5,
                "font-family": "ui-monospace, Menlo, monospace",
                "font-weight": i === token ? 700 : 400,
                fill: "var(--ink)",
              },
              text,
            ),
          ),
        ),
      ),
    );
  }

  function arc(from, to, base, weight, up, distance, title) {
    const color = up ? "var(--accent)" : "var(--warm)";
    const peak = (up ? -1 : LOWER_SCALE) * arcHeight(distance);
    return from === to
      ? h(
          "circle",
          {
            cx: from,
            cy: base + (up ? -7 : 7),
            r: 1 + 5 * Math.sqrt(weight),
            fill: color,
            class: "arc",
          },
          h("title", title),
        )
      : h(
          "path",
          {
            d: `M${from},${base} C${from},${base + peak * 1.3} ${to},${base + peak * 1.3} ${to},${base}`,
            fill: "none",
            stroke: color,
            "stroke-width": Math.max(0.7, MAX_WIDTH * weight),
            "stroke-opacity": 0.35 + 0.6 * weight,
            class: "arc",
          },
          h("title", title),
        );
  }

  return { holder, draw };
}

const arcHeight = (distance) => 10 + MAX_HEIGHT * Math.sqrt(distance);

function longestArc(weights, count) {
  let longest = 1;
  for (let query = 0; query < count; query += 1)
    for (let key = 0; key < count; key += 1)
      if (weights.at(query, key) >= MIN_WEIGHT) longest = Math.max(longest, Math.abs(query - key));
  return longest;
}

function arcsOfToken(weights, token, count) {
  const arcs = [];
  for (let i = 0; i < count; i += 1) {
    arcs.push({ query: token, key: i, weight: weights.at(token, i), up: true });
    if (i !== token) arcs.push({ query: i, key: token, weight: weights.at(i, token), up: false });
  }
  return arcs.filter(({ weight }) => weight >= MIN_WEIGHT);
}

function strongestArcs(weights, count) {
  const arcs = [];
  for (let query = 0; query < count; query += 1)
    for (let key = 0; key < count; key += 1)
      arcs.push({ query, key, weight: weights.at(query, key), up: true });
  return arcs
    .filter(({ weight }) => weight >= 3 * MIN_WEIGHT)
    .sort((a, b) => b.weight - a.weight)
    .slice(0, 4 * count);
}

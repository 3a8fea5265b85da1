// Arcs between tokens. Of one token: above, whom it asks; below, who asks it. Of none: the strongest of all, above.

import { fill, h } from "../../dom.js";
import { percent, shown } from "./colours.js";

const [HIGHEST, LOWER, THICKEST, FAINTEST] = [120, 0.55, 9, 0.02];

export function arcRow({ hover, choose }) {
  const holder = h("div", { class: "scroll" });
  let wide = 900;

  function draw(now, tokens, token) {
    const count = tokens.length;
    wide = holder.clientWidth || wide;
    const slot = Math.max(13, Math.min(90, wide / count));
    const labels = tokens.map((one) => { const text = shown(one); return text.length > 12 ? `${text.slice(0, 11)}…` : text; });
    const longest = Math.max(...labels.map((text) => text.length)) * 7.6 + 6;
    const upright = longest > slot;
    const high = upright ? longest : 20;
    const side = 22 + risen(farthest(now, count) / count);  // the same whichever token is pointed at, so that nothing jumps
    const [width, height] = [slot * count, side * (1 + LOWER) + high];
    const x = (i) => (i + 0.5) * slot;
    const arcs = token === null ? strongest(now, count) : around(now, token, count);
    fill(holder, h("svg", { viewBox: `0 0 ${width} ${height}`, width, height, role: "img", "aria-label": token === null ? "the strongest arcs of attention" : `whom «${shown(tokens[token])}» asks, above, and who asks it, below`, style: { display: "block" }, onpointerleave: () => hover(null) },
      arcs.map(({ m, t, weight, up }) => arc(x(m), x(t), up ? side : side + high, weight, up, Math.abs(m - t) / count, `«${shown(tokens[m])}» asks «${shown(tokens[t])}»: ${percent(weight)}`)),
      labels.map((text, i) => h("g", { style: { cursor: "pointer" }, onpointerenter: () => hover(i), onclick: () => choose(i) },
        h("rect", { x: i * slot, y: side, width: slot, height: high, fill: i === token ? "var(--shade)" : "transparent" }),
        h("text", { x: x(i), y: side + high / 2, transform: upright ? `rotate(-90 ${x(i)} ${side + high / 2})` : false, "text-anchor": "middle", "dominant-baseline": "central", "font-size": 12.5, "font-family": "ui-monospace, Menlo, monospace", "font-weight": i === token ? 700 : 400, fill: "var(--ink)" }, text)))));
  }

  function arc(from, to, base, weight, up, reach, title) {
    const colour = up ? "var(--accent)" : "var(--warm)";
    const rise = (up ? -1 : LOWER) * risen(reach);
    return from === to
      ? h("circle", { cx: from, cy: base + (up ? -7 : 7), r: 1 + 5 * Math.sqrt(weight), fill: colour, class: "arc" }, h("title", title))
      : h("path", { d: `M${from},${base} C${from},${base + rise * 1.3} ${to},${base + rise * 1.3} ${to},${base}`, fill: "none", stroke: colour, "stroke-width": Math.max(0.7, THICKEST * weight), "stroke-opacity": 0.35 + 0.6 * weight, class: "arc" }, h("title", title));
  }

  return { holder, draw };
}

const risen = (reach) => 10 + HIGHEST * Math.sqrt(reach);

function farthest(now, count) {
  let most = 1;
  for (let m = 0; m < count; m += 1) for (let t = 0; t < count; t += 1) if (now.at(m, t) >= FAINTEST) most = Math.max(most, Math.abs(m - t));
  return most;
}

function around(now, token, count) {
  const found = [];
  for (let i = 0; i < count; i += 1) {
    found.push({ m: token, t: i, weight: now.at(token, i), up: true });
    if (i !== token) found.push({ m: i, t: token, weight: now.at(i, token), up: false });
  }
  return found.filter(({ weight }) => weight >= FAINTEST);
}

function strongest(now, count) {
  const found = [];
  for (let m = 0; m < count; m += 1) for (let t = 0; t < count; t += 1) found.push({ m, t, weight: now.at(m, t), up: true });
  return found.filter(({ weight }) => weight >= 3 * FAINTEST).sort((a, b) => b.weight - a.weight).slice(0, 4 * count);
}

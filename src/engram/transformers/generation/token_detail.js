// One token: its alternatives with their probabilities; another can be taken instead, or the text cut.

import { button, fill, h } from "../../dom.js";
import { percent, tokenLabel } from "../attention/colors.js";
import { describeParameters } from "./sampling_parameters.js";

// replace(i, id, p): take another token; cut(i); cutAndContinue(i)
export function tokenDetail({ replace, cut, cutAndContinue }) {
  const holder = h("div", { class: "panel detail" });

  const show = (token, i) =>
    fill(
      holder,
      h("h3", { style: { "margin-top": 0 } }, `Token ${i}: "${tokenLabel(token.name)}"`),
      token.top
        ? h("div", { class: "bars", data: { alternatives: i } }, alternatives(token, i))
        : h("p", "Nothing comes before it."),
      token.top && [describeRank(token), describeOrigin(token)],
      !token.prompt &&
        h(
          "div",
          { class: "row" },
          button("cut here", () => cut(i), { class: "small" }),
          button("cut here and continue", () => cutAndContinue(i), { class: "small" }),
        ),
    );

  function alternatives(token, i) {
    const largest = Math.max(...token.top.map(([, , p]) => p), 1e-9);
    return token.top.map(([id, name, p]) => {
      const isTaken = id === token.id;
      const label = token.prompt
        ? h("span", { class: "mono" }, tokenLabel(name))
        : button(tokenLabel(name), () => replace(i, id, p), {
            class: "small mono",
            "aria-label": `take ${tokenLabel(name)} instead`,
            "aria-pressed": String(isTaken),
          });
      const bar = h("div", {
        class: "bar",
        style: {
          width: `${(100 * p) / largest}%`,
          background: isTaken ? "var(--warm)" : "var(--accent)",
        },
      });
      const origin = token.prompt ? " ← prompt" : token.byHand ? " ← chosen" : " ← sampled";
      return [
        label,
        bar,
        h("span", { data: { taken: isTaken } }, `${percent(p)}${isTaken ? origin : ""}`),
      ];
    });
  }

  return { holder, show, clear: () => fill(holder) };
}

// Rank and probability of a token that is not among the alternatives.
const describeRank = ({ id, name, p, rank, top }) =>
  !top.some(([other]) => other === id) &&
  h(
    "p",
    { class: "small" },
    p > 0
      ? `"${tokenLabel(name)}" was number ${rank}, with ${percent(p)}.`
      : `"${tokenLabel(name)}" could not have been sampled.`,
  );

const describeOrigin = ({ prompt, byHand, candidates, settings }) =>
  h(
    "p",
    { class: "soft small", style: { "margin-top": ".5rem" } },
    prompt
      ? "Part of the prompt: the prediction of the model itself."
      : `${byHand ? "Chosen by hand from" : "Sampled from"} ${candidates} token${candidates === 1 ? "" : "s"}, at ${describeParameters(settings)}. Click another to continue with it.`,
  );

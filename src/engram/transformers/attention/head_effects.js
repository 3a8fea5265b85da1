// Effect of every head on the prediction: each is switched off in turn.

import { h } from "../../dom.js";
import { channel } from "../../socket.js";
import { tokenLabel } from "./colors.js";

// show(effects): called as they arrive, and with none when they are cleared
export function headEffects({ run, step, show }) {
  const latest = channel();
  const summary = h("p", { class: "small" });

  async function measure(text, position) {
    const found = [];
    summary.textContent = "Each head is switched off in turn …";
    try {
      const { target } = await latest(
        "attention.effects",
        { run, step, text, position },
        (part) => {
          found.push(part);
          show(found);
        },
      );
      summary.textContent = `For "${tokenLabel(target)}", in log p: ${largest(found)} matter most. Blue heads help, orange ones hinder.`;
    } catch (error) {
      summary.textContent = error.message;
    }
  }

  function clear() {
    latest.stop();
    summary.textContent = "";
    show([]);
  }

  return { summary, measure, clear, stop: latest.stop };
}

const largest = (effects) =>
  [...effects]
    .sort((a, b) => Math.abs(b.effect) - Math.abs(a.effect))
    .slice(0, 3)
    .map(
      ({ layer, head, effect }) =>
        `${layer}·${head} (${effect >= 0 ? "+" : "−"}${Math.abs(effect).toPrecision(2)})`,
    )
    .join(", ");

// Tokens that have arrived, shown at the chosen pace.

import { slider, prefersReducedMotion } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";

const FASTEST = 60; // tokens per second from which all are shown at once

// show(tokens) is called with the next tokens
export function pacing(show) {
  let [queue, timer] = [[], null];
  const pace = slider({
    label: "pace, tokens/s",
    name: "pace",
    low: 2,
    high: FASTEST,
    step: 1,
    value: Number(getQuery("pace", "20")),
    show: (x) => (x >= FASTEST ? "as it comes" : String(x)),
    change: (x) => {
      setQuery({ pace: x });
      showNext();
    },
  });

  function showNext() {
    if (timer || !queue.length) return;
    const perSecond = Number(pace.input.value);
    show(queue.splice(0, prefersReducedMotion() || perSecond >= FASTEST ? Infinity : 1));
    if (queue.length)
      timer = setTimeout(() => {
        timer = null;
        showNext();
      }, 1000 / perSecond);
  }

  function add(tokens) {
    queue.push(...tokens);
    showNext();
  }

  function clear() {
    clearTimeout(timer);
    [queue, timer] = [[], null];
  }

  return { slider: pace, add, clear };
}

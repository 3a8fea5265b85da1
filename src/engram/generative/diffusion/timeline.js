// Time of the trajectories: a slider from noise to samples, and a button that plays them.

import { button, slider, prefersReducedMotion } from "../../dom.js";

const FRAME_MS = 90;

// trajectories(): those that are shown; changed(time): called when the time was moved, null is the end; draw(): called to
// show the time
export function timeline({ time, timesteps, trajectories, changed, draw }) {
  let timer = null;
  const scrub = slider({
    label: "time step",
    name: "scrub",
    low: 0,
    high: 1,
    step: 1,
    value: 1,
    show: () => "",
    change: (i) => {
      pause();
      move(i >= last() ? null : (times()[i] ?? 0));
    },
  });
  const play = button("▶ play", () => (timer ? pause() : start()), { class: "main" });

  // Times of all steps that have arrived, from noise to samples.
  const times = () =>
    [...new Set(trajectories().flatMap((one) => one.steps().map(({ t }) => t)))].sort(
      (a, b) => b - a,
    );

  // End of the slider: the expected number of steps until all have arrived.
  const last = () =>
    Math.max(
      1,
      times().length - 1,
      ...trajectories().map((one) => (one.isDone() ? 1 : one.settings.steps)),
    );

  const index = () =>
    time === null
      ? times().length - 1
      : Math.max(
          0,
          times().findLastIndex((t) => t >= time),
        );

  function move(t) {
    time = t;
    changed(t);
    draw();
  }

  function pause() {
    clearInterval(timer);
    timer = null;
    play.textContent = "▶ play";
  }

  function start() {
    pause();
    if (prefersReducedMotion()) {
      move(null);
      return;
    }
    time = timesteps;
    play.textContent = "⏸ pause";
    timer = setInterval(advance, FRAME_MS);
    draw();
  }

  function advance() {
    const next = times()[index() + 1];
    if (next !== undefined) time = next;
    else if (trajectories().every((one) => one.isDone())) {
      pause();
      time = null;
    }
    draw();
  }

  // Show the time on the slider; false if no step has arrived yet.
  function show() {
    const all = times();
    if (!all.length) return false;
    scrub.input.max = last();
    scrub.set(time === null ? last() : index());
    scrub.querySelector("output").textContent = `t = ${all[index()]} of ${timesteps}`;
    return true;
  }

  return { scrub, play, time: () => time, move, start, pause, show };
}

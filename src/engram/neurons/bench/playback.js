// Playback: the time cursor as a slider, moved by hand or played.

import { button, h, prefersReducedMotion } from "../../dom.js";

const PLAYED_MS = 7000;

// `moved` is called when the cursor of the recording has moved.
export function playback(recording, moved) {
  let frame = null;
  const time = h("input", {
    type: "range",
    min: 0,
    max: 1000,
    value: 1000 * recording.cursor,
    "aria-label": "time cursor",
    style: { flex: 1, "min-width": "8rem" },
    oninput: () => moveTo(Number(time.value) / 1000),
  });
  const play = button("▶ play", () => (frame === null ? start() : pause()));

  function set(part) {
    recording.cursor = Math.max(0, Math.min(1, part));
    time.value = recording.cursor * 1000;
    moved();
  }

  function moveTo(part) {
    pause();
    set(part);
  }

  function pause() {
    cancelAnimationFrame(frame);
    frame = null;
    play.textContent = "▶ play";
  }

  function start() {
    const { cursor } = recording;
    const begun = performance.now() - (cursor >= 0.999 ? 0 : cursor) * PLAYED_MS;
    play.textContent = "⏸ pause";
    const next = (now) => {
      set((now - begun) / PLAYED_MS);
      if (recording.cursor >= 1) pause();
      else frame = requestAnimationFrame(next);
    };
    frame = requestAnimationFrame(next);
  }

  // Play from the beginning, unless motion is unwanted.
  function replay() {
    if (prefersReducedMotion()) return;
    pause();
    recording.cursor = 0;
    start();
  }

  return { element: h("div", { class: "row" }, play, time), moveTo, pause, replay };
}

// A few steps of one image from left to right: the noisy image above, the predicted clean image below.

import { COLORS } from "../../charts.js";
import { h } from "../../dom.js";
import { COLUMNS } from "./trajectory.js";

const FRAMES = 12;

// image: its number among those of the trajectory; choose(t): called when a step is clicked, null is the end
export function imageStrip({ trajectory, image, shape: [, height, width], choose }) {
  const [left, top] = [(image % COLUMNS) * (width + 1), Math.floor(image / COLUMNS) * (height + 1)];
  let shown = [];
  const canvas = h("canvas", {
    class: "pixels",
    role: "img",
    "aria-label": `trajectory of image ${image + 1}, ${trajectory.name}`,
    style: { width: "100%", cursor: "pointer", "touch-action": "auto" },
    onclick: ({ offsetX }) => {
      const frame = Math.floor((offsetX / canvas.clientWidth) * FRAMES);
      choose(shown[Math.min(shown.length - 1, frame)]?.t || null);
    },
  });

  // Draw all frames and mark the one of time t.
  function draw(t) {
    shown = spread(trajectory.steps());
    [canvas.width, canvas.height] = [FRAMES * (width + 1), 2 * (height + 1) + 1];
    const pen = canvas.getContext("2d");
    shown.forEach(({ x, x_0 }, i) =>
      [x, x_0].forEach((one, row) => {
        const place = [i * (width + 1), row * (height + 1)];
        pen.drawImage(one, left, top, width, height, ...place, width, height);
      }),
    );
    const now = Math.max(
      0,
      shown.findLastIndex((one) => one.t >= t),
    );
    pen.fillStyle = COLORS[1];
    pen.fillRect(now * (width + 1), 2 * (height + 1), width, 1);
  }

  return { canvas, draw };
}

// At most FRAMES steps, evenly spread.
const spread = (steps) =>
  steps.length <= FRAMES
    ? steps
    : Array.from(
        { length: FRAMES },
        (_, i) => steps[Math.round((i * (steps.length - 1)) / (FRAMES - 1))],
      );

// Points of a step: test points, the score, trajectories of some points, and the points themselves.

import { polyline } from "../../canvas_plot.js";
import { COLORS } from "../../charts.js";

const [TRAILS, SIDE] = [24, 400];

// now: the step; kind: "x" for its noisy points, "x_0" for the predicted clean ones; steps: of its trajectory
export function drawPoints(canvas, { about, real }, { now, kind, steps }) {
  const ratio = devicePixelRatio || 1;
  canvas.width = canvas.height = SIDE * ratio;
  const pen = canvas.getContext("2d");
  const [low, high] = about.range;
  const at = (points, i) => [
    ((points.at(i, 0) - low) / (high - low)) * SIDE,
    ((high - points.at(i, 1)) / (high - low)) * SIDE,
  ];
  pen.scale(ratio, ratio);
  drawDots(pen, real, at, "rgba(128,128,128,0.4)", 1.2);
  if (kind === "x") {
    if (now.score) drawScore(pen, now.score, about.arrows);
    const before = steps.filter(({ t }) => t >= now.t);
    drawTrails(pen, before, at);
  }
  drawDots(pen, now[kind], at, COLORS[kind === "x" ? 0 : 2], 1.8);
}

function drawDots(pen, points, at, color, radius) {
  pen.fillStyle = color;
  pen.beginPath();
  for (let i = 0; i < points.shape[0]; i += 1) {
    const [x, y] = at(points, i);
    pen.moveTo(x, y);
    pen.arc(x, y, radius, 0, 7);
  }
  pen.fill();
}

// The score at the points of a grid as arrows; `arrows` is their number along a side.
function drawScore(pen, score, arrows) {
  const gap = SIDE / (arrows - 1);
  pen.strokeStyle = COLORS[1];
  pen.lineWidth = 1;
  pen.beginPath();
  for (let i = 0; i < arrows ** 2; i += 1) {
    const [x, y] = [(i % arrows) * gap, SIDE - Math.floor(i / arrows) * gap];
    const length = Math.hypot(score.at(i, 0), score.at(i, 1)) || 1;
    const [dx, dy] = [score.at(i, 0), -score.at(i, 1)].map(
      (d) => (d / Math.max(1, length)) * gap * 0.8,
    );
    pen.moveTo(x, y);
    pen.lineTo(x + dx, y + dy);
    for (const side of [-1, 1]) {
      pen.moveTo(x + dx, y + dy);
      pen.lineTo(x + 0.65 * dx + side * 0.2 * dy, y + 0.65 * dy - side * 0.2 * dx);
    }
  }
  pen.stroke();
}

function drawTrails(pen, steps, at) {
  pen.strokeStyle = COLORS[5];
  pen.lineWidth = 0.8;
  for (let i = 0; i < TRAILS; i += 1)
    polyline(
      pen,
      steps.map(({ x }) => at(x, i)),
    );
}

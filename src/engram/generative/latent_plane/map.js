// The map of the plane: decoded images, test samples, the interpolation, and the selected latent.

import { polyline } from "../../canvas_plot.js";
import { COLORS } from "../../charts.js";
import { h } from "../../dom.js";
import { project } from "./plane.js";

const [MAP_WIDTH, CLICK_RADIUS] = [600, 12];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

// state: about, bands, item, path, pinned, z; shows: checkboxes of images and points; preview(x, y) follows the pointer,
// selectPoint(x, y) and selectItem(i) a click, leave() the end of both
export function latentMap({ state, shows, preview, leave, selectPoint, selectItem }) {
  const canvas = h("canvas", {
    class: "pixels",
    tabindex: 0,
    width: MAP_WIDTH,
    height: MAP_WIDTH,
    role: "application",
    "aria-label": "map of latents: arrow keys move",
    style: { width: "100%", display: "block" },
  });
  const span = () => (state.about.extent * state.about.side) / (state.about.side - 1); // images are centered on their points, so half of one is outside
  const toMap = (x, y) => [
    ((x / span() + 1) / 2) * canvas.width,
    ((1 - y / span()) / 2) * canvas.height,
  ];
  const fromMap = ({ offsetX, offsetY }) => [
    ((2 * offsetX) / canvas.clientWidth - 1) * span(),
    (1 - (2 * offsetY) / canvas.clientHeight) * span(),
  ];
  const samples = () =>
    state.about.projected && shows.points.checked ? places(state.about.projected, toMap) : null;

  // previewed: point of the plane under the pointer
  function draw(previewed = null) {
    const { about, bands, path, z, pinned } = state;
    if (!about) return;
    if (about.is_image) canvas.height = Math.round((MAP_WIDTH * about.shape[1]) / about.shape[2]);
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, canvas.width, canvas.height);
    pen.imageSmoothingEnabled = about.is_image && 2 * about.side * about.shape[2] > canvas.width; // large pixels stay sharp
    if (about.is_image && shows.images.checked)
      drawBands(pen, bands, about.side, Boolean(samples()));
    else drawGrid(pen, about, span(), toMap);
    if (about.kind === "random")
      ring(pen, toMap(0, 0), canvas.width / span(), "rgba(128,128,128,0.9)", 1);
    if (samples()) drawSamples(pen, samples(), about.labels, state.item);
    if (path && about.has_encoder)
      drawPath(
        pen,
        path.map((latent) => toMap(...project(about, latent))),
      );
    const place = toMap(...(previewed ?? (z ? project(about, z) : pinned)));
    ring(pen, place, 9, "#000", 5);
    ring(pen, place, 9, "#fff", 2.5);
  }

  function nearestSample({ offsetX, offsetY }) {
    const scale = canvas.clientWidth / canvas.width;
    let [best, least] = [null, CLICK_RADIUS];
    samples()?.forEach(([x, y], i) => {
      const distance = Math.hypot(x * scale - offsetX, y * scale - offsetY);
      if (distance < least) [best, least] = [i, distance];
    });
    return best;
  }

  canvas.addEventListener("pointermove", (event) => {
    if (!state.about) return;
    if (event.buttons) selectPoint(...fromMap(event));
    else if (event.pointerType === "mouse") preview(...fromMap(event));
  });
  canvas.addEventListener("pointerleave", leave);
  canvas.addEventListener("click", (event) => {
    if (!state.about) return;
    const near = nearestSample(event);
    if (near === null) selectPoint(...fromMap(event));
    else selectItem(near);
  });
  canvas.addEventListener("keydown", (event) => {
    const direction = ARROWS[event.key];
    if (!direction || !state.about) return;
    event.preventDefault();
    const distance = state.about.extent / (event.shiftKey ? 5 : 25);
    const to = project(state.about, state.z).map((one, i) => one + direction[i] * distance);
    selectPoint(...to.map((one) => Math.max(-span(), Math.min(span(), one))));
  });
  return { canvas, draw };
}

const places = (points, toMap) =>
  Array.from({ length: points.shape[0] }, (_, i) => toMap(points.at(i, 0), points.at(i, 1)));

function drawBands(pen, bands, side, dimmed) {
  const { width, height } = pen.canvas;
  for (const { bitmap, top, rows } of bands)
    if (bitmap) pen.drawImage(bitmap, 0, (top * height) / side, width, (rows * height) / side);
  if (!dimmed) return;
  pen.fillStyle = "rgba(0,0,0,0.3)"; // so that the samples stand out
  pen.fillRect(0, 0, width, height);
}

function drawGrid(pen, { side, extent }, span, toMap) {
  pen.strokeStyle = "rgba(128,128,128,0.3)";
  pen.lineWidth = 1;
  for (let i = 0; i < side; i += 1) {
    const at = -extent + (2 * extent * i) / (side - 1);
    polyline(pen, [toMap(at, -span), toMap(at, span)]);
    polyline(pen, [toMap(-span, at), toMap(span, at)]);
  }
}

function drawSamples(pen, samples, labels, selected) {
  samples.forEach((place, i) => {
    pen.beginPath();
    pen.arc(...place, i === selected ? 6 : 3.2, 0, 7);
    pen.fillStyle = COLORS[(labels[i] ?? 0) % COLORS.length];
    pen.fill();
    pen.lineWidth = 0.7;
    pen.strokeStyle = "#fff";
    pen.stroke();
  });
}

function drawPath(pen, path) {
  for (const [color, width] of [
    ["#000", 4.5],
    ["#fff", 2],
  ]) {
    pen.strokeStyle = color;
    pen.lineWidth = width;
    polyline(pen, path);
  }
}

function ring(pen, place, radius, color, width) {
  pen.beginPath();
  pen.arc(...place, radius, 0, 7);
  pen.strokeStyle = color;
  pen.lineWidth = width;
  pen.stroke();
}

// The decoded latent: an image, or a point among test points and the decoded points of the plane.

import { coalesce, dot, polyline } from "../../canvas_plot.js";
import { COLORS } from "../../charts.js";
import { fill, h } from "../../dom.js";
import { request, decodeArray } from "../../socket.js";

const [SIDE, MAX_COORDINATE] = [640, 1e4];

// state: about and bands; showStatus(message) says what failed
export function decodedLatent({ run, step, state, showStatus }) {
  const holder = h("div", { data: { decoded: "" }, style: { "max-width": "20rem" } });
  const readout = h("p", { class: "soft small", data: { latent: "" } });
  let point = null;

  // Decode one latent at a time, then the newest: a pointer moves faster than responses arrive.
  let next = null;
  const decodeNext = coalesce(async () => {
    if (!next) return;
    const now = next;
    const z = Array.from(now, (one) => Math.max(-MAX_COORDINATE, Math.min(MAX_COORDINATE, one)));
    try {
      show(await request("latent.decode", { run, step, z }), now);
      showStatus("");
    } catch (error) {
      showStatus(error.message);
    }
  });

  function decode(latent) {
    next = latent;
    decodeNext();
  }

  function show(response, latent) {
    if (response.image)
      fill(
        holder,
        h("img", {
          class: "sample",
          src: response.image,
          alt: "decoded latent",
          style: { width: "20rem" },
        }),
      );
    else {
      point = decodeArray(response.points).values;
      drawPoints();
    }
    const first = latent
      .slice(0, 6)
      .map((one) => one.toFixed(2))
      .join(", ");
    readout.textContent =
      `z = (${first}${latent.length > 6 ? `, … ${latent.length} dimensions` : ""})` +
      (response.real === undefined
        ? ""
        : ` · discriminator: real with probability ${Math.round(100 * response.real)} %`);
  }

  function drawPoints() {
    let canvas = holder.querySelector("canvas");
    if (!canvas) {
      canvas = pointCanvas();
      fill(holder, canvas);
    }
    const { real, side, latent_dim } = state.about;
    const second = Math.min(1, real.shape[1] - 1);
    const extent = 1.25 * real.values.reduce((most, one) => Math.max(most, Math.abs(one)), 1e-6);
    const at = (x, y) => [((x / extent + 1) * SIDE) / 2, ((1 - y / extent) * SIDE) / 2];
    const place = (points, i) => at(points.at(i, 0), points.at(i, second));
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, SIDE, SIDE);
    pen.fillStyle = "rgba(128,128,128,0.6)";
    for (let i = 0; i < real.shape[0]; i += 1) {
      const [x, y] = place(real, i);
      pen.fillRect(x - 2, y - 2, 4, 4);
    }
    drawMesh(pen, meshRows(state.bands, side, place), latent_dim);
    if (point) dot(pen, ...at(point[0], point[second]), COLORS[1], 9);
  }

  const stop = () => {
    next = null;
  };
  return { holder, readout, decode, drawPoints, stop };
}

const pointCanvas = () =>
  h("canvas", {
    class: "pixels",
    width: SIDE,
    height: SIDE,
    role: "img",
    "aria-label": "decoded points of the map",
    style: { width: "20rem", cursor: "default", "touch-action": "auto" },
  });

// Places of the decoded points of the plane, row by row.
const meshRows = (bands, side, place) =>
  bands
    .filter(({ mesh }) => mesh)
    .flatMap(({ mesh, rows }) =>
      Array.from({ length: rows }, (_, r) =>
        Array.from({ length: side }, (_, c) => place(mesh, r * side + c)),
      ),
    );

function drawMesh(pen, rows, latentDim) {
  pen.strokeStyle = COLORS[0];
  pen.lineWidth = 1;
  rows.forEach((row) => polyline(pen, row));
  if (latentDim > 1 && rows.length)
    rows[0].forEach((_, c) =>
      polyline(
        pen,
        rows.map((row) => row[c]),
      ),
    );
}

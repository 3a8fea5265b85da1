// One test sample: its original, its reconstruction, and their difference.

import { button, fill, h } from "../../dom.js";
import { decodeArray } from "../../socket.js";

// interpolateFrom(number) and interpolateTo(number) make the sample an end of the interpolation
export function testSamplePanel({ interpolateFrom, interpolateTo }) {
  const holder = h("div");
  const show = (number, { class: name, original, reconstruction, error }) =>
    fill(
      holder,
      h("p", { class: "small" }, h("b", `test sample ${number}`), name && ` · ${name}`),
      original && framed("original", original),
      framed("reconstruction", reconstruction),
      error !== undefined &&
        h("p", { class: "soft small" }, `squared error ${error.toPrecision(3)}`),
      h(
        "div",
        { class: "row" },
        button("interpolate from here", () => interpolateFrom(number), { class: "small" }),
        button("interpolate to here", () => interpolateTo(number), { class: "small" }),
      ),
    );
  return { holder, show, clear: () => fill(holder) };
}

function framed(title, { image, points }) {
  const content = image
    ? h("img", { class: "sample", src: image, alt: title, style: { width: "7rem" } })
    : h(
        "code",
        Array.from(decodeArray(points).values.slice(0, 4), (one) => one.toFixed(2)).join(", "),
      );
  return h(
    "figure",
    { style: { margin: "0" } },
    h("figcaption", { class: "small" }, title),
    content,
  );
}

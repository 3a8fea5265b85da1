// Zero-shot classification of one image: the best text, and the probability of every text.

import { copyable, fill, h } from "../../dom.js";
import { tile } from "../../drawing.js";
import { decodeArray } from "../../socket.js";

export function zeroShotView({ shape: [, height, width], captions: count }) {
  const verdict = h("p", { role: "status", class: "verdict", style: { "font-size": "1.05rem" } });
  const image = h("div");
  const bars = h("div", {
    class: "bars",
    style: { "grid-template-columns": "minmax(0, max-content) minmax(5rem, 1fr) max-content" },
  });
  const captions = h("ol", { class: "captions" });
  const command = h("div");
  const element = h(
    "div",
    verdict,
    h(
      "div",
      { class: "halves" },
      h(
        "figure",
        image,
        count > 0 && [
          h(
            "figcaption",
            { class: "small", style: { "margin-top": ".8rem" } },
            `The most similar captions of the data, of ${count.toLocaleString("en")}:`,
          ),
          captions,
        ],
      ),
      h(
        "figure",
        h(
          "figcaption",
          { class: "small" },
          "Image and texts are embedded in one space. A softmax of their cosine similarities, scaled by the learned temperature, gives the probability of each text: zero-shot classification.",
        ),
        bars,
      ),
    ),
    command,
  );

  // item: number of the test image that the response is about
  function show({ x, caption, cosine, p, scale }, texts, item) {
    const best = p.indexOf(Math.max(...p));
    fill(
      verdict,
      "The best text is ",
      h("b", `"${texts[best]}"`),
      ` (${percent(p[best])} of these ${texts.length}).`,
    );
    const { values } = decodeArray(x);
    fill(
      image,
      tile({ width, height, values, label: caption || "your image", size: 220 }),
      h(
        "div",
        { class: "small soft" },
        caption ? `test image ${item}: "${caption}"` : "your image, as the model sees it",
      ),
    );
    const order = p.map((_, i) => i).sort((a, b) => p[b] - p[a]);
    fill(
      bars,
      order.map((i) =>
        probabilityBar({ text: texts[i], p: p[i], cosine: cosine[i], scale, isBest: i === best }),
      ),
    );
  }

  const showCaptions = (retrieved) =>
    fill(
      captions,
      retrieved.map(({ text, cosine }) =>
        h("li", text, " ", h("span", { class: "soft small" }, signed(cosine))),
      ),
    );
  const showCommand = (line) => fill(command, copyable("command line", line));

  function showMissing() {
    verdict.textContent = "Type a text or two: one a line.";
    fill(bars);
  }

  function showError(message) {
    verdict.textContent = message;
    [image, bars, captions].forEach((one) => fill(one));
  }

  return { element, show, showCaptions, showCommand, showMissing, showError };
}

const probabilityBar = ({ text, p, cosine, scale, isBest }) => [
  h("span", { style: { "overflow-wrap": "anywhere", "font-weight": isBest ? 650 : 400 } }, text),
  h("div", h("div", { class: "bar", style: { width: `${100 * p}%` } })),
  h(
    "span",
    {
      class: "small",
      data: { text },
      style: { "font-variant-numeric": "tabular-nums", "text-align": "right" },
      title: `softmax of ${scale.toFixed(1)} × cosine`,
    },
    `${percent(p)} `,
    h("span", { class: "soft" }, `cos ${signed(cosine)}`),
  ),
];

export const signed = (x) => x.toFixed(2).replace("-", "−");
const percent = (p) => `${p > 0.0005 && p < 0.9995 ? (100 * p).toFixed(1) : Math.round(100 * p)} %`;

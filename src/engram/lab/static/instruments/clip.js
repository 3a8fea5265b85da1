// Pictures and words: texts that somebody types, a picture, and how well each describes it.

import { bytes, disc, dropPlace, keepPicture, keptPicture } from "../brought.js";
import { button, copyable, fill, fresh, h, settled, slider } from "../dom.js";
import { tile } from "../drawing.js";
import { keep, kept } from "../lab.js";
import { channel, unpacked } from "../link.js";

export async function mount(holder, { run, step }) {
  const [latest, tables] = [channel(), channel()];
  const about = await latest("clip.about", { run, step });
  const [channels, height, width] = about.shape;
  const own = keptPicture("picture", channels * height * width);
  const within = (name) => Math.max(0, Math.min(about.count - 1, Number(kept(name, "0")) || 0));  // another model may have fewer
  const state = {
    item: within("item"), source: about.count ? kept("source", "test") : "own", own: own ?? (about.count ? null : disc(about.shape)),
    first: within("first"), count: Number(kept("count", "6")), with: kept("with", "captions"),
  };

  // ------------------------------------------------------------------ picture and texts

  const id = fresh("labels");
  const texts = h("textarea", { id, name: "labels", rows: 7, spellcheck: "false", maxlength: 5000, oninput: () => moved() });
  texts.value = kept("labels", about.labels.join("\n"));
  const labels = () => [...new Set(texts.value.split("\n").map((line) => line.trim()).filter(Boolean))];
  const number = h("input", { type: "number", name: "item", min: 0, max: about.count - 1, value: state.item, "aria-label": "number of the test picture", style: { width: "6.5rem" }, oninput: () => go(Number(number.value), false) });
  function go(item, writes = true) {
    if (!Number.isInteger(item)) return;
    Object.assign(state, { item: Math.min(about.count - 1, Math.max(0, item)), source: "test" });
    if (writes) number.value = state.item;
    look();
  }
  const tests = about.count > 0 && h("div", { class: "row" }, button("◀", () => go(state.item - 1), { "aria-label": "previous picture" }), number, button("▶", () => go(state.item + 1), { "aria-label": "next picture" }), button("random", () => go(Math.floor(Math.random() * about.count))));
  const brings = dropPlace({ label: "a picture of your own", shape: about.shape, crops: about.crops, taken: (values) => { Object.assign(state, { own: values, source: "own" }); keepPicture("picture", values); look(); } });

  // ------------------------------------------------------------------ what is seen

  const said = h("p", { role: "status", class: "verdict", style: { "font-size": "1.05rem" } });
  const picture = h("div");
  const bars = h("div", { class: "bars", style: { "grid-template-columns": "minmax(0, max-content) minmax(5rem, 1fr) max-content" } });
  const captions = h("ol", { class: "captions" });
  const command = h("div");
  const table = h("div", { class: "scroll" });
  const tableSaid = h("p", { role: "status", class: "soft small" });
  const firsts = about.count > 0 && slider({ label: "first picture", name: "first", low: 0, high: Math.max(0, about.count - 1), step: 1, value: state.first, change: (value) => { state.first = value; matrixMoved(); } });
  const counts = about.count > 0 && slider({ label: "pictures", name: "count", low: 1, high: 12, step: 1, value: state.count, change: (value) => { state.count = value; matrixMoved(); } });
  const withs = [["captions", "their own captions"], ["labels", "the texts above"]].map(([name, text]) => button(text, () => { state.with = name; matrix(); }, { class: "small", data: { with: name } }));

  fill(holder,
    h("div", { class: "two" },
      h("div", { class: "panel" }, h("label", { for: id }, "texts, one a line"), texts, h("div", { style: { margin: ".7rem 0" } }, tests), brings),
      h("div", said, h("div", { class: "halves" },
        h("figure", picture, about.captions > 0 && [h("figcaption", { class: "small", style: { "margin-top": ".8rem" } }, `The captions of the data that lie nearest to it, of ${about.captions.toLocaleString("en")}:`), captions]),
        h("figure", h("figcaption", { class: "small" }, "Picture and texts become points of one space. The cosine says how near they are; sharpened by the learnt temperature, a softmax makes it probabilities among your texts: a classifier that was never trained as one."), bars)),
        command)),
    about.count > 0 && h("section", h("h2", "Every picture with every text"),
      h("p", { class: "soft small" }, "A cell is the cosine of a picture with a text, the best text of each picture is framed. With their own captions, what is right is marked ✓."),
      h("div", { class: "row" }, h("div", { style: { width: "14rem" } }, firsts), h("div", { style: { width: "10rem" } }, counts), withs), tableSaid, table));

  // ------------------------------------------------------------------ asking

  async function look() {
    const asked = labels();
    keep({ labels: texts.value === about.labels.join("\n") ? "" : texts.value, item: state.item, source: state.source });
    if (!asked.length) { said.textContent = "Type a text or two: one a line."; fill(bars); return; }
    const pixels = state.source === "own" && state.own;
    try {
      const { nearest } = await latest("clip", { run, step, labels: asked, ...(pixels ? { pixels: bytes(state.own) } : { item: state.item }) }, (part) => { if (part.p) show(part, asked); });
      fill(captions, nearest.map(({ text, cosine }) => h("li", text, " ", h("span", { class: "soft small" }, signed(cosine)))));
    } catch (error) {
      said.textContent = error.message;
      [picture, bars, captions].forEach((one) => fill(one));
    }
    if (state.with === "labels") matrix();
  }
  const moved = settled(250, look);

  function show({ x, caption, cosine, p, scale }, asked) {
    const best = p.indexOf(Math.max(...p));
    fill(said, "It goes best with ", h("b", `«${asked[best]}»`), ` (${percent(p[best])} of these ${asked.length}).`);
    fill(picture, tile({ width, height, values: unpacked(x).values, label: caption || "your picture", size: 220 }), h("div", { class: "small soft" }, caption ? `test picture ${state.item}: «${caption}»` : "your picture, as the model sees it"));
    const order = p.map((_, i) => i).sort((a, b) => p[b] - p[a]);
    fill(bars, order.map((i) => [h("span", { style: { "overflow-wrap": "anywhere", "font-weight": i === best ? 650 : 400 } }, asked[i]), h("div", h("div", { class: "bar", style: { width: `${100 * p[i]}%` } })),
      h("span", { class: "small", data: { text: asked[i] }, style: { "font-variant-numeric": "tabular-nums", "text-align": "right" }, title: `softmax of ${scale.toFixed(1)} × cosine` }, `${percent(p[i])} `, h("span", { class: "soft" }, `cos ${signed(cosine[i])}`))]));
    const quoted = asked.map((one) => `'${one.replaceAll("'", "'\\''")}'`).join(" ");
    fill(command, copyable("command line", `engram sample ${run.includes("/") ? run : `runs/${run}`} --labels ${quoted}${state.source === "own" ? " --image PICTURE" : ""}`));
  }

  // ------------------------------------------------------------------ the matrix

  async function matrix() {
    if (!about.count) return;
    keep({ first: state.first, count: state.count, with: state.with });
    withs.forEach((one) => one.setAttribute("aria-pressed", String(one.dataset.with === state.with)));
    try {
      drawMatrix(await tables("clip.matrix", { run, step, item: state.first, count: state.count, labels: state.with === "labels" ? labels() : [""] }));
    } catch (error) {
      tableSaid.textContent = error.message;
      fill(table);
    }
  }
  const matrixMoved = settled(80, matrix);

  // Texts are rows, because they are long, and pictures are columns.
  function drawMatrix({ items, x, captions: own, texts: rows, cosine }) {
    const pixels = unpacked(x).values;
    const size = channels * height * width;
    const [low, high] = [Math.min(...cosine.flat()), Math.max(...cosine.flat())];
    const best = cosine.map((row) => row.indexOf(Math.max(...row)));
    const right = best.filter((k, b) => rows[k] === own[b]).length;
    tableSaid.textContent = state.with === "captions" ? `${right} of ${items.length} pictures go best with their own caption.` : `${rows.length} texts, ${items.length} pictures.`;
    const heads = items.map((item, b) => h("th", { scope: "col", style: { padding: ".2rem", "text-align": "center" } }, button([tile({ width, height, values: pixels.subarray(b * size, (b + 1) * size), label: `test picture ${item}: ${own[b]}`, size: 56 })], () => { go(item); scrollTo({ top: 0 }); }, { class: "small", title: own[b], "aria-label": `look at test picture ${item}`, style: { padding: "2px", width: "62px" } })));
    const cell = (b, k) => {
      const part = (cosine[b][k] - low) / (high - low || 1);
      return h("td", { class: "number", style: { "text-align": "center", padding: ".3rem", background: `color-mix(in srgb, var(--accent) ${Math.round(75 * part)}%, transparent)`, outline: best[b] === k ? "2px solid var(--warm)" : "none", "outline-offset": "-2px" } }, signed(cosine[b][k]), rows[k] === own[b] && " ✓");
    };
    fill(table, h("table", { style: { width: "auto" } }, h("thead", h("tr", h("td"), heads)), h("tbody", rows.map((text, k) => h("tr", h("th", { scope: "row", style: { "min-width": "9rem", "max-width": "22rem" } }, text), items.map((_, b) => cell(b, k)))))));
  }

  look();
  matrix();
  return () => { latest.stop(); tables.stop(); };
}

const signed = (x) => x.toFixed(2).replace("-", "−");
const percent = (p) => `${p > 0.0005 && p < 0.9995 ? (100 * p).toFixed(1) : Math.round(100 * p)} %`;

// One head in full: rows ask, columns answer. A cell can be chosen with the pointer or the arrow keys.

import { h } from "../../dom.js";
import { css, percent, shown, tint } from "./colours.js";

const FONT = "12px ui-monospace, Menlo, monospace";
const LONGEST = 10;  // letters of a label

export function headMap({ choose, hover, nudge, undo }) {
  const canvas = h("canvas", { class: "pixels", tabindex: 0, role: "img", style: { display: "block", "image-rendering": "auto" } });
  let [room, side, head] = [0, 1, null];

  function draw(now, tokens, { cell, token, edits, causal }) {
    const ratio = devicePixelRatio || 1;
    const pen = canvas.getContext("2d");
    pen.font = FONT;
    const labels = tokens.map((one) => { const text = shown(one); return text.length > LONGEST ? `${text.slice(0, LONGEST - 1)}…` : text; });
    head = { now, tokens, causal, cell };
    room = Math.ceil(Math.max(...labels.map((text) => pen.measureText(text).width))) + 8;
    side = Math.max(6, Math.min(30, Math.floor((420 - room) / tokens.length)));
    const size = room + side * tokens.length + 1;
    [canvas.width, canvas.height] = [size * ratio, size * ratio];
    canvas.style.setProperty("width", `${size}px`);
    pen.scale(ratio, ratio);
    pen.font = side < 12 ? FONT.replace("12px", `${Math.max(6, side)}px`) : FONT;
    cells(pen, now, causal);
    names(pen, labels, token ?? cell?.[0]);
    if (token !== null && token !== undefined) { pen.strokeStyle = css("--accent"); pen.lineWidth = 1.5; pen.strokeRect(room, room + token * side, side * tokens.length, side); }
    if (cell) frame(pen, cell, css("--ink"), 2);
    edits.forEach((edit) => dot(pen, edit));
    canvas.setAttribute("aria-label", cell ? said(cell) : "attention, token by token: arrow keys choose a cell");
  }

  function cells(pen, now, causal) {
    const count = now.shape[0];
    const largest = Math.max(...now.values) || 1;
    for (let m = 0; m < count; m += 1) {
      for (let t = 0; t < (causal ? m + 1 : count); t += 1) {
        pen.fillStyle = tint(now.at(m, t) / largest);
        pen.fillRect(room + t * side, room + m * side, side - (side > 9), side - (side > 9));
      }
    }
  }

  function names(pen, labels, bold) {
    labels.forEach((text, i) => {
      pen.fillStyle = i === bold ? css("--accent") : css("--soft");
      pen.textBaseline = "middle";
      pen.textAlign = "right";
      pen.fillText(text, room - 5, room + (i + 0.5) * side);
      pen.save();
      pen.translate(room + (i + 0.5) * side, room - 5);
      pen.rotate(-Math.PI / 2);
      pen.textAlign = "left";
      pen.fillText(text, 0, 0);
      pen.restore();
    });
  }

  function frame(pen, [m, t], colour, width) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.strokeRect(room + t * side + width / 2, room + m * side + width / 2, side - width, side - width);
  }

  // An edited cell has a ringed dot, which can be seen on any colour.
  function dot(pen, { asks, answers }) {
    pen.beginPath();
    pen.arc(room + (answers + 0.5) * side, room + (asks + 0.5) * side, Math.max(2, side / 4), 0, 2 * Math.PI);
    [pen.fillStyle, pen.strokeStyle, pen.lineWidth] = [css("--warm"), css("--paper"), 1.5];
    pen.fill();
    pen.stroke();
  }

  const said = ([m, t]) => `«${shown(head.tokens[m])}» asks «${shown(head.tokens[t])}»: ${percent(head.now.at(m, t))}`;

  function under(event) {
    const box = canvas.getBoundingClientRect();
    const scale = (room + side * head.tokens.length + 1) / box.width;
    const [m, t] = [event.clientY - box.top, event.clientX - box.left].map((at) => Math.floor((at * scale - room) / side));
    return m >= 0 && t >= 0 && m < head.tokens.length && t < head.tokens.length ? [m, t] : null;
  }

  canvas.addEventListener("pointermove", (event) => {
    if (!head) return;
    const cell = under(event);
    hover(cell?.[0] ?? null);
    canvas.title = cell ? said(cell) : "";
  });
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("click", (event) => { const cell = head && under(event); if (cell && !(head.causal && cell[1] > cell[0])) choose(cell); });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!head) return;
    const last = head.tokens.length - 1;
    const [m, t] = head.cell ?? [last, 0];
    if (moves[event.key]) {
      const row = Math.max(0, Math.min(last, m + moves[event.key][0]));
      choose([row, Math.max(0, Math.min(head.causal ? row : last, t + moves[event.key][1]))]);
    } else if ("+=".includes(event.key)) nudge(0.05);
    else if (event.key === "-") nudge(-0.05);
    else if (event.key === "Delete" || event.key === "Backspace") undo();
    else return;
    event.preventDefault();
  });

  return { canvas, draw, said };
}

// Attention weights of one head: rows are queries, columns are keys. A cell is chosen with the pointer or the arrow keys.

import { cssVariable } from "../../canvas_plot.js";
import { h } from "../../dom.js";
import { percent, tokenLabel, viridis } from "./colors.js";

const FONT = "12px ui-monospace, Menlo, monospace";
const MAX_LABEL = 10; // characters of a label

export function headMap({ choose, hover, change, undo }) {
  const canvas = h("canvas", {
    class: "pixels",
    tabindex: 0,
    role: "img",
    style: { display: "block", "image-rendering": "auto" },
  });
  let [labelSpace, side, head] = [0, 1, null];

  function draw(weights, tokens, { cell, token, edits, causal }) {
    const ratio = devicePixelRatio || 1;
    const context = canvas.getContext("2d");
    context.font = FONT;
    const labels = tokens.map((one) => {
      const text = tokenLabel(one);
      return text.length > MAX_LABEL ? `${text.slice(0, MAX_LABEL - 1)}…` : text;
    });
    head = { weights, tokens, causal, cell };
    labelSpace = Math.ceil(Math.max(...labels.map((text) => context.measureText(text).width))) + 8;
    side = Math.max(6, Math.min(30, Math.floor((420 - labelSpace) / tokens.length)));
    const size = labelSpace + side * tokens.length + 1;
    [canvas.width, canvas.height] = [size * ratio, size * ratio];
    canvas.style.setProperty("width", `${size}px`);
    context.scale(ratio, ratio);
    context.font = side < 12 ? FONT.replace("12px", `${Math.max(6, side)}px`) : FONT;
    drawCells(context, weights, causal);
    drawLabels(context, labels, token ?? cell?.[0]);
    if (token !== null && token !== undefined) {
      context.strokeStyle = cssVariable("--accent");
      context.lineWidth = 1.5;
      context.strokeRect(labelSpace, labelSpace + token * side, side * tokens.length, side);
    }
    if (cell) drawFrame(context, cell, cssVariable("--ink"), 2);
    edits.forEach((edit) => drawDot(context, edit));
    canvas.setAttribute(
      "aria-label",
      cell ? describe(cell) : "attention, token by token: arrow keys choose a cell",
    );
  }

  function drawCells(context, weights, causal) {
    const count = weights.shape[0];
    const largest = Math.max(...weights.values) || 1;
    for (let query = 0; query < count; query += 1) {
      for (let key = 0; key < (causal ? query + 1 : count); key += 1) {
        context.fillStyle = viridis(weights.at(query, key) / largest);
        context.fillRect(
          labelSpace + key * side,
          labelSpace + query * side,
          side - (side > 9),
          side - (side > 9),
        );
      }
    }
  }

  function drawLabels(context, labels, bold) {
    labels.forEach((text, i) => {
      context.fillStyle = i === bold ? cssVariable("--accent") : cssVariable("--soft");
      context.textBaseline = "middle";
      context.textAlign = "right";
      context.fillText(text, labelSpace - 5, labelSpace + (i + 0.5) * side);
      context.save();
      context.translate(labelSpace + (i + 0.5) * side, labelSpace - 5);
      context.rotate(-Math.PI / 2);
      context.textAlign = "left";
      context.fillText(text, 0, 0);
      context.restore();
    });
  }

  function drawFrame(context, [query, key], color, width) {
    context.strokeStyle = color;
    context.lineWidth = width;
    context.strokeRect(
      labelSpace + key * side + width / 2,
      labelSpace + query * side + width / 2,
      side - width,
      side - width,
    );
  }

  // An edited cell has a dot with an outline, visible on any color.
  function drawDot(context, { query, key }) {
    context.beginPath();
    context.arc(
      labelSpace + (key + 0.5) * side,
      labelSpace + (query + 0.5) * side,
      Math.max(2, side / 4),
      0,
      2 * Math.PI,
    );
    [context.fillStyle, context.strokeStyle, context.lineWidth] = [
      cssVariable("--warm"),
      cssVariable("--paper"),
      1.5,
    ];
    context.fill();
    context.stroke();
  }

  const describe = ([query, key]) =>
    `"${tokenLabel(head.tokens[query])}" attends to "${tokenLabel(head.tokens[key])}": ${percent(head.weights.at(query, key))}`;

  function cellAt(event) {
    const box = canvas.getBoundingClientRect();
    const scale = (labelSpace + side * head.tokens.length + 1) / box.width;
    const [query, key] = [event.clientY - box.top, event.clientX - box.left].map((at) =>
      Math.floor((at * scale - labelSpace) / side),
    );
    return query >= 0 && key >= 0 && query < head.tokens.length && key < head.tokens.length
      ? [query, key]
      : null;
  }

  canvas.addEventListener("pointermove", (event) => {
    if (!head) return;
    const cell = cellAt(event);
    hover(cell?.[0] ?? null);
    canvas.title = cell ? describe(cell) : "";
  });
  canvas.addEventListener("pointerleave", () => hover(null));
  canvas.addEventListener("click", (event) => {
    const cell = head && cellAt(event);
    if (cell && !(head.causal && cell[1] > cell[0])) choose(cell);
  });
  canvas.addEventListener("keydown", (event) => {
    const moves = { ArrowLeft: [0, -1], ArrowRight: [0, 1], ArrowUp: [-1, 0], ArrowDown: [1, 0] };
    if (!head) return;
    const last = head.tokens.length - 1;
    const [query, key] = head.cell ?? [last, 0];
    if (moves[event.key]) {
      const row = Math.max(0, Math.min(last, query + moves[event.key][0]));
      choose([row, Math.max(0, Math.min(head.causal ? row : last, key + moves[event.key][1]))]);
    } else if ("+=".includes(event.key)) change(0.05);
    else if (event.key === "-") change(-0.05);
    else if (event.key === "Delete" || event.key === "Backspace") undo();
    else return;
    event.preventDefault();
  });

  return { canvas, draw, describe };
}

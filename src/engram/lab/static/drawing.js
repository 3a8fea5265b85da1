// Pixels: a canvas of them to draw on (mouse, pen, touch, keyboard), and small ones to look at.
//
//   const board = pixelCanvas({ width: 28, height: 28, values, change, label: "picture" });
//   holder.append(board.element);                       // the canvas, and its tools below it
//
//   width, height   pixels of the picture
//   values          numbers to begin with, row by row (channels × height × width); empty without
//   change(values, ended)   called while a stroke moves and, with `ended`, after it, a key, or «clear»; not after set().
//                           `values` is the board's own Float32Array: copy what is kept
//   label           what it is called, for whoever does not see it
//   mode            "grey" (a soft brush, default), "binary" (a pixel is one of two) or "colour" (three channels)
//   range           what an empty and a full pixel are: [0, 1], or e.g. [-1, 1]
//   tones           CSS colours from empty to full, "--names" of variables too: default ["#000", "#fff"], as data is
//   brush           pixels across, to begin with: 1 where there are few pixels, otherwise 2
//   size            pixels of the screen across, at most: 300
//   tools           whether the brush, eraser and «clear» are shown: true
//
//   board.values                                        the Float32Array (channels × height × width)
//   board.set(values)                                   show others; strokes go on from there
//   board.mark(indices)                                 frame some pixels (row × width + column), until the next mark
//   board.clear(), board.canvas, board.stop()           stop() when the page is left
//
//   const small = tile({ width, height, values, label, size, range, tones });   // a canvas; small.set(values)
//
// Keys on the canvas: arrows move a cursor, space draws there (held: along the way), x or Backspace erases, Home and End
// go to the ends of a row. The right button, or Shift, erases too.

import { button, fresh, h, slider } from "./dom.js";

const MODES = { grey: 1, binary: 1, colour: 3 };
const WAYS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

// Canvases are painted anew when the lights change: variables have other values then.
const painted = new Map();
const repaint = () => { for (const [canvas, show] of painted) { if (canvas.isConnected) show(); else painted.delete(canvas); } };
new MutationObserver(repaint).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", repaint);

export function pixelCanvas({ width, height, values, change = () => {}, label, mode = "grey", range = [0, 1], tones = ["#000", "#fff"], brush, size = 300, tools = true }) {
  const channels = MODES[mode];
  const pen = { across: brush ?? (Math.max(width, height) <= 16 ? 1 : 2), erases: false, colour: [1, 1, 1] };
  const live = new Float32Array(channels * width * height).fill(range[0]);
  if (values) live.set(values);
  const cursor = { x: width >> 1, y: height >> 1, shown: false, down: null };
  let marked = [];
  let stroke = null;

  const said = h("output", { class: "soft small", "aria-live": "polite", style: { "min-height": "1.3em", display: "block" } });
  const canvas = screen({ width, height, size, label: `${label}: ${width} × ${height} pixels; arrows move, space draws, x erases` });
  canvas.classList.add("pixels");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  const show = () => {
    paint(canvas, { width, height, values: live, channels, range, tones });
    if (Math.max(width, height) <= 16) rule(canvas, width, height);
    marked.forEach((index) => frame(canvas, index % width, Math.floor(index / width), width, "#e69f00"));
    if (cursor.shown) frame(canvas, cursor.x, cursor.y, width, "#dc267f");
  };

  function dab(x, y, erases) {
    const reach = pen.across / 2;
    for (let row = Math.max(0, Math.floor(y - reach)); row <= Math.min(height - 1, Math.floor(y + reach)); row += 1) {
      for (let column = Math.max(0, Math.floor(x - reach)); column <= Math.min(width - 1, Math.floor(x + reach)); column += 1) {
        const within = column === Math.floor(x) && row === Math.floor(y);
        const far = Math.hypot(column + 0.5 - x, row + 0.5 - y);
        const wet = within || far <= reach ? 1 : mode === "grey" && pen.across > 1 ? Math.max(0, 1 - (far - reach) / 0.7) : 0;
        if (wet > 0) colourIn(row * width + column, wet, erases);
      }
    }
  }

  function colourIn(index, wet, erases) {
    for (let channel = 0; channel < channels; channel += 1) {
      const place = channel * width * height + index;
      const full = erases ? range[0] : range[0] + (range[1] - range[0]) * (mode === "colour" ? pen.colour[channel] : 1);
      if (mode === "colour" || wet === 1) live[place] = full;
      else live[place] = erases ? Math.min(live[place], range[1] + (range[0] - range[1]) * wet) : Math.max(live[place], range[0] + (range[1] - range[0]) * wet);
    }
  }

  function along(from, to, erases) {
    const steps = Math.max(1, Math.ceil(2 * Math.hypot(to[0] - from[0], to[1] - from[1])));
    for (let i = 1; i <= steps; i += 1) dab(from[0] + ((to[0] - from[0]) * i) / steps, from[1] + ((to[1] - from[1]) * i) / steps, erases);
  }

  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [((event.clientX - box.left) / box.width) * width, ((event.clientY - box.top) / box.height) * height];
  };
  const after = (ended) => { show(); change(live, ended); };

  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 && event.button !== 2) return;
    canvas.setPointerCapture(event.pointerId);
    stroke = { at: place(event), id: event.pointerId, erases: pen.erases || event.button === 2 || event.shiftKey };
    [cursor.shown, marked] = [false, []];
    dab(...stroke.at, stroke.erases);
    after(false);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (stroke?.id !== event.pointerId) return;
    for (const one of event.getCoalescedEvents?.() ?? [event]) {
      const at = place(one);
      along(stroke.at, at, stroke.erases);
      stroke.at = at;
    }
    after(false);
  });
  const lift = (event) => { if (stroke?.id === event.pointerId) { stroke = null; after(true); } };
  canvas.addEventListener("pointerup", lift);
  canvas.addEventListener("pointercancel", lift);
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in WAYS) move(...WAYS[event.key]);
    else if (event.key === "Home" || event.key === "End") move(event.key === "Home" ? -width : width, 0);
    else if (event.key === " ") press(pen.erases);
    else if (event.key === "x" || event.key === "Backspace") press(true);
    else return;
    event.preventDefault();
    cursor.shown = true;
    show();
    const index = cursor.y * width + cursor.x;
    said.textContent = `row ${cursor.y + 1}, column ${cursor.x + 1}: ${live[index] > (range[0] + range[1]) / 2 ? "full" : "empty"}`;
  });
  canvas.addEventListener("keyup", (event) => { if ([" ", "x", "Backspace"].includes(event.key)) cursor.down = null; });
  canvas.addEventListener("blur", () => { Object.assign(cursor, { shown: false, down: null }); said.textContent = ""; show(); });

  function move(x, y) {
    cursor.x = Math.min(width - 1, Math.max(0, cursor.x + x));
    cursor.y = Math.min(height - 1, Math.max(0, cursor.y + y));
    if (cursor.down) press(cursor.down.erases);
  }

  function press(erases) {
    cursor.down = { erases };
    marked = [];
    dab(cursor.x + 0.5, cursor.y + 0.5, erases);
    change(live, true);
  }

  const board = {
    canvas, values: live,
    set: (others) => { live.set(others); marked = []; show(); },
    mark: (indices) => { marked = [...indices]; show(); },
    clear: () => { live.fill(range[0]); marked = []; after(true); },
    stop: () => painted.delete(canvas),
  };
  board.element = h("div", { class: "drawing" }, canvas, said, tools && offered(pen, mode, Math.max(width, height), board.clear));
  painted.set(canvas, show);
  show();
  return board;
}

function offered(pen, mode, largest, clear) {
  const draws = button("draw", () => hold(false), { class: "small", "aria-pressed": "true" });
  const erases = button("erase", () => hold(true), { class: "small", "aria-pressed": "false" });
  const hold = (whether) => {
    pen.erases = whether;
    draws.setAttribute("aria-pressed", String(!whether));
    erases.setAttribute("aria-pressed", String(whether));
  };
  const id = fresh("colour");
  const colour = mode === "colour" && h("input", { type: "color", id, value: "#ffffff", "aria-label": "colour", oninput: () => { pen.colour = rgb(colour.value).map((x) => x / 255); hold(false); } });
  const across = slider({ label: "brush", low: 1, high: Math.max(2, Math.min(8, Math.ceil(largest / 4))), step: 1, value: pen.across, change: (x) => { pen.across = x; } });
  across.style.width = "7rem";
  return h("div", { class: "row" }, draws, erases, colour, button("clear", clear, { class: "small" }), across);
}

// ---------------------------------------------------------------------- to look at

export function tile({ width, height, values, label, size = 64, range = [0, 1], tones = ["#000", "#fff"] }) {
  const canvas = screen({ width, height, size, label });
  canvas.setAttribute("role", "img");
  const channels = Math.max(1, Math.round(values.length / (width * height)));
  canvas.set = (others) => {
    const show = () => paint(canvas, { width, height, values: others, channels, range, tones });
    painted.set(canvas, show);
    show();
  };
  canvas.set(values);
  return canvas;
}

function screen({ width, height, size, label }) {
  const scale = Math.max(1, Math.round((2 * size) / Math.max(width, height)));  // twice as fine as it is shown: sharp on any screen
  return h("canvas", { width: width * scale, height: height * scale, "aria-label": label, style: { width: `min(100%, ${Math.round((size * width) / Math.max(width, height))}px)`, "aspect-ratio": `${width} / ${height}` } });
}

function paint(canvas, { width, height, values, channels, range: [low, high], tones }) {
  const stops = tones.map(rgb);
  const small = new ImageData(width, height);
  for (let i = 0; i < width * height; i += 1) {
    for (let channel = 0; channel < 3; channel += 1) {
      const full = Math.min(1, Math.max(0, (values[channels === 3 ? channel * width * height + i : i] - low) / (high - low)));
      const at = full * (stops.length - 1);
      const [a, b] = [stops[Math.floor(at)], stops[Math.ceil(at)]];
      small.data[4 * i + channel] = channels === 3 ? 255 * full : a[channel] + (b[channel] - a[channel]) * (at - Math.floor(at));
    }
    small.data[4 * i + 3] = 255;
  }
  const context = canvas.getContext("2d");
  const scratch = new OffscreenCanvas(width, height);
  scratch.getContext("2d").putImageData(small, 0, 0);
  context.imageSmoothingEnabled = false;
  context.drawImage(scratch, 0, 0, canvas.width, canvas.height);
}

function frame(canvas, x, y, width, colour) {
  const context = canvas.getContext("2d");
  const side = canvas.width / width;
  context.strokeStyle = colour;
  context.lineWidth = Math.max(2, side / 10);
  context.strokeRect(x * side + context.lineWidth / 2, y * side + context.lineWidth / 2, side - context.lineWidth, side - context.lineWidth);
}

function rule(canvas, width, height) {
  const context = canvas.getContext("2d");
  context.strokeStyle = "rgba(128, 128, 128, 0.35)";
  context.lineWidth = 1;
  context.beginPath();
  for (let x = 1; x < width; x += 1) { context.moveTo((x * canvas.width) / width, 0); context.lineTo((x * canvas.width) / width, canvas.height); }
  for (let y = 1; y < height; y += 1) { context.moveTo(0, (y * canvas.height) / height); context.lineTo(canvas.width, (y * canvas.height) / height); }
  context.stroke();
}

// A CSS colour, or the value of a variable of the page, as three numbers up to 255.
function rgb(colour) {
  const text = colour.startsWith("--") ? getComputedStyle(document.documentElement).getPropertyValue(colour).trim() : colour;
  const digits = text.slice(1).length === 3 ? [...text.slice(1)].map((one) => one + one).join("") : text.slice(1);
  return [0, 2, 4].map((i) => parseInt(digits.slice(i, i + 2), 16));
}

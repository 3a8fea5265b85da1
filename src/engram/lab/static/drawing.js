// Pixel canvases: one to draw on (mouse, pen, touch, keyboard), and small ones that show images.
//
//   const board = pixelCanvas({ width: 28, height: 28, values, change, label: "image" });
//   holder.append(board.element);                       // the canvas with its tools below
//
//   width, height   size of the image in pixels
//   values          initial values, channels × height × width; without them the canvas is empty
//   change(values, ended)   called during a stroke and, with `ended`, after a stroke, a key or "clear"; not after set().
//                           `values` is the Float32Array of the canvas: copy it to keep it
//   label           accessible name
//   mode            "gray" (a soft brush, default), "binary" (pixels are on or off) or "color" (three channels)
//   range           values of an empty and a full pixel: [0, 1], or e.g. [-1, 1]
//   tones           CSS colors from empty to full, "--names" of variables too: default ["#000", "#fff"], as data is
//   brush           initial width of the brush in pixels: 1 for small images, otherwise 2
//   size            largest width on the screen in pixels: 300
//   tools           whether brush, eraser and "clear" are shown: true
//
//   board.values                                        the Float32Array (channels × height × width)
//   board.set(values)                                   replace the image
//   board.mark(indices)                                 frame some pixels (row × width + column) until the next mark
//   board.clear(), board.canvas, board.stop()           call stop() when the page is left
//
//   const small = tile({ width, height, values, label, size, range, tones });   // a canvas; small.set(values)
//
// Keys: arrows move a cursor, space draws (held: along the path), x or Backspace erases, Home and End go to the ends of
// a row. The right button, or Shift, erases too.

import { brushTools, createBrush } from "./brush.js";
import { h } from "./dom.js";
import { buildCanvas, drawGrid, forget, frame, keepPainted, paint } from "./pixels.js";

const MODES = { gray: 1, binary: 1, color: 3 };
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };

export function pixelCanvas({
  width,
  height,
  values,
  change = () => {},
  label,
  mode = "gray",
  range = [0, 1],
  tones = ["#000", "#fff"],
  brush,
  size = 300,
  tools = true,
}) {
  const channels = MODES[mode];
  const live = new Float32Array(channels * width * height).fill(range[0]);
  if (values) live.set(values);
  const { pen, dab, drawLine } = createBrush({ live, width, height, channels, mode, range, brush });
  const canvas = buildDrawing({ width, height, size, label });
  const status = h("output", {
    class: "soft small",
    "aria-live": "polite",
    style: { "min-height": "1.3em", display: "block" },
  });
  let marked = [];

  const show = () => {
    paint(canvas, { width, height, values: live, channels, range, tones });
    if (Math.max(width, height) <= 16) drawGrid(canvas, width, height);
    marked.forEach((index) =>
      frame(canvas, index % width, Math.floor(index / width), width, "#e69f00"),
    );
    if (cursor.shown) frame(canvas, cursor.x, cursor.y, width, "#dc267f");
  };
  const changed = (ended) => {
    show();
    change(live, ended);
  };
  const mark = (indices) => {
    marked = [...indices];
    show();
  };

  const cursor = followKeys(canvas, width, height, pen, {
    press: (x, y, erases) => {
      marked = [];
      dab(x + 0.5, y + 0.5, erases);
      change(live, true);
    },
    moved: ({ x, y }) => {
      show();
      const full = live[y * width + x] > (range[0] + range[1]) / 2;
      status.textContent = `row ${y + 1}, column ${x + 1}: ${full ? "full" : "empty"}`;
    },
    left: () => {
      status.textContent = "";
      show();
    },
  });
  followPointer(canvas, width, height, pen, {
    begin: (at, erases) => {
      [cursor.shown, marked] = [false, []];
      dab(...at, erases);
    },
    drawLine,
    changed,
  });

  const clear = () => {
    live.fill(range[0]);
    marked = [];
    changed(true);
  };
  const set = (newValues) => {
    live.set(newValues);
    mark([]);
  };
  const element = h(
    "div",
    { class: "drawing" },
    canvas,
    status,
    tools && brushTools(pen, mode, Math.max(width, height), clear),
  );
  keepPainted(canvas, show);
  return { element, canvas, values: live, set, mark, clear, stop: () => forget(canvas) };
}

function buildDrawing({ width, height, size, label }) {
  const canvas = buildCanvas({
    width,
    height,
    size,
    label: `${label}: ${width} × ${height} pixels; arrows move, space draws, x erases`,
  });
  canvas.classList.add("pixels");
  canvas.tabIndex = 0;
  canvas.setAttribute("role", "application");
  return canvas;
}

// Strokes of a pointer: begin(at, erases), drawLine(from, to, erases), and changed(ended) after each.
function followPointer(canvas, width, height, pen, { begin, drawLine, changed }) {
  let stroke = null;
  const position = (event) => {
    const box = canvas.getBoundingClientRect();
    return [
      ((event.clientX - box.left) / box.width) * width,
      ((event.clientY - box.top) / box.height) * height,
    ];
  };
  canvas.addEventListener("pointerdown", (event) => {
    if (event.button !== 0 && event.button !== 2) return;
    canvas.setPointerCapture(event.pointerId);
    stroke = {
      at: position(event),
      id: event.pointerId,
      erases: pen.erases || event.button === 2 || event.shiftKey,
    };
    begin(stroke.at, stroke.erases);
    changed(false);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (stroke?.id !== event.pointerId) return;
    for (const one of event.getCoalescedEvents?.() ?? [event]) {
      const at = position(one);
      drawLine(stroke.at, at, stroke.erases);
      stroke.at = at;
    }
    changed(false);
  });
  const endStroke = (event) => {
    if (stroke?.id === event.pointerId) {
      stroke = null;
      changed(true);
    }
  };
  canvas.addEventListener("pointerup", endStroke);
  canvas.addEventListener("pointercancel", endStroke);
  canvas.addEventListener("contextmenu", (event) => event.preventDefault());
}

// A cursor that keys move: press(x, y, erases) where it draws, moved(cursor) after every key, left() without focus.
function followKeys(canvas, width, height, pen, { press, moved, left }) {
  const cursor = { x: width >> 1, y: height >> 1, shown: false };
  let down = null; // the key that is held draws along the path

  function move(x, y) {
    cursor.x = Math.min(width - 1, Math.max(0, cursor.x + x));
    cursor.y = Math.min(height - 1, Math.max(0, cursor.y + y));
    if (down) press(cursor.x, cursor.y, down.erases);
  }

  function draw(erases) {
    down = { erases };
    press(cursor.x, cursor.y, erases);
  }

  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in ARROWS) move(...ARROWS[event.key]);
    else if (event.key === "Home" || event.key === "End")
      move(event.key === "Home" ? -width : width, 0);
    else if (event.key === " ") draw(pen.erases);
    else if (event.key === "x" || event.key === "Backspace") draw(true);
    else return;
    event.preventDefault();
    cursor.shown = true;
    moved(cursor);
  });
  canvas.addEventListener("keyup", (event) => {
    if ([" ", "x", "Backspace"].includes(event.key)) down = null;
  });
  canvas.addEventListener("blur", () => {
    cursor.shown = false;
    down = null;
    left();
  });
  return cursor;
}

// A small canvas that shows an image.
export function tile({
  width,
  height,
  values,
  label,
  size = 64,
  range = [0, 1],
  tones = ["#000", "#fff"],
}) {
  const canvas = buildCanvas({ width, height, size, label });
  canvas.setAttribute("role", "img");
  const channels = Math.max(1, Math.round(values.length / (width * height)));
  canvas.set = (newValues) =>
    keepPainted(canvas, () =>
      paint(canvas, { width, height, values: newValues, channels, range, tones }),
    );
  canvas.set(values);
  return canvas;
}

// A map of words to wander on: wheel, pinch and buttons zoom, dragging and arrows move, a click goes to a word.
//
//   const map = wordMap({ label: "map of words", chosen: (word) => … });
//   holder.append(map.element);
//   map.set([{ word, x, y }, …]);                        // all of them, the most important first: labels give way to earlier ones
//   map.mark({ word, x, y }, [{ word, x, y }, …]);       // a word and those near it
//   map.stop();

import { button, h, prefersReducedMotion } from "./dom.js";

const MARGIN = 40;
const REACH = 14; // pixels around a point that count as a hit
const WAYS = { ArrowLeft: [1, 0], ArrowRight: [-1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] };

export function wordMap({ label, chosen }) {
  const canvas = h("canvas", {
    tabindex: 0,
    role: "img",
    "aria-label": `${label}; arrows move, + and − zoom, 0 shows all`,
    style: {
      width: "100%",
      height: "min(34rem, 70vh)",
      "touch-action": "none",
      cursor: "grab",
      border: "1px solid var(--line)",
      "border-radius": ".5rem",
    },
  });
  const context = canvas.getContext("2d");
  const view = { x: 0, y: 0, scale: 1 }; // what is in the middle, and pixels for one of the map's units
  const fingers = new Map();
  let [points, main, near, hover] = [[], null, [], null];
  let [whole, pending, moving, dragged, fits] = [1, 0, 0, 0, false];

  const size = () => [canvas.clientWidth, canvas.clientHeight];
  const place = ({ x, y }) => {
    const [width, height] = size();
    return [width / 2 + (x - view.x) * view.scale, height / 2 - (y - view.y) * view.scale];
  };
  const redraw = () => {
    cancelAnimationFrame(pending);
    pending = requestAnimationFrame(paint);
  };

  function all() {
    const [width, height] = size();
    const [xs, ys] = [points.map((p) => p.x), points.map((p) => p.y)];
    const [x0, x1, y0, y1] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
    whole = Math.min((width - 2 * MARGIN) / (x1 - x0 || 1), (height - 2 * MARGIN) / (y1 - y0 || 1));
    return { x: (x0 + x1) / 2, y: (y0 + y1) / 2, scale: whole };
  }

  function zoom(by, [px, py] = size().map((one) => one / 2)) {
    const [width, height] = size();
    const scale = Math.min(whole * 60, Math.max(whole * 0.5, view.scale * by));
    const shift = 1 / view.scale - 1 / scale;
    Object.assign(view, {
      x: view.x + (px - width / 2) * shift,
      y: view.y - (py - height / 2) * shift,
      scale,
    });
    redraw();
  }

  function pan(x, y) {
    Object.assign(view, { x: view.x - x / view.scale, y: view.y + y / view.scale });
    redraw();
  }

  // Move there by and by; at once for whoever wants things to be still.
  function to(end) {
    cancelAnimationFrame(moving);
    if (prefersReducedMotion()) {
      Object.assign(view, end);
      redraw();
      return;
    }
    const [begin, start] = [{ ...view }, performance.now()];
    const step = (now) => {
      const part = Math.min(1, (now - start) / 350);
      const eased = part * part * (3 - 2 * part);
      Object.assign(view, {
        x: begin.x + (end.x - begin.x) * eased,
        y: begin.y + (end.y - begin.y) * eased,
        scale: begin.scale * (end.scale / begin.scale) ** eased,
      });
      paint();
      if (part < 1) moving = requestAnimationFrame(step);
    };
    moving = requestAnimationFrame(step);
  }

  // ------------------------------------------------------------------ painting

  function paint() {
    const [width, height] = size();
    if (!fits && canvas.clientWidth && points.length) {
      fits = true;
      Object.assign(view, all());
    }
    const fine = devicePixelRatio || 1;
    if (canvas.width !== Math.round(width * fine))
      Object.assign(canvas, { width: Math.round(width * fine), height: Math.round(height * fine) });
    context.setTransform(fine, 0, 0, fine, 0, 0);
    context.clearRect(0, 0, width, height);
    const style = getComputedStyle(document.documentElement);
    const color = (name) => style.getPropertyValue(name).trim();
    const taken = [];
    const marked = new Set([main, ...near].filter(Boolean).map((one) => one.word));
    if (main) for (const one of near) line(place(main), place(one), color("--line"));
    if (main) dot(main, 7, color("--warm"), taken, width, height, "600 15px");
    for (const one of near) dot(one, 5, color("--accent"), taken, width, height, "600 13px");
    if (hover && !marked.has(hover.word))
      dot(hover, 5, color("--ink"), taken, width, height, "600 13px");
    for (const one of points)
      if (!marked.has(one.word) && one !== hover)
        dot(one, 2.2, color("--soft"), taken, width, height, "12px", 0.75);
    context.globalAlpha = 1;
  }

  function line([x0, y0], [x1, y1], color) {
    context.strokeStyle = color;
    context.beginPath();
    context.moveTo(x0, y0);
    context.lineTo(x1, y1);
    context.stroke();
  }

  function dot(one, radius, color, taken, width, height, font, alpha = 1) {
    const [x, y] = place(one);
    if (x < -100 || y < -20 || x > width + 100 || y > height + 20) return;
    context.globalAlpha = alpha;
    context.fillStyle = color;
    context.beginPath();
    context.arc(x, y, radius, 0, 7);
    context.fill();
    context.font = `${font} system-ui, sans-serif`;
    const box = [
      x + radius + 2,
      y - 8,
      x + radius + 4 + context.measureText(one.word).width,
      y + 7,
    ];
    if (
      taken.some(
        (other) => box[0] < other[2] && box[2] > other[0] && box[1] < other[3] && box[3] > other[1],
      )
    )
      return;
    taken.push(box);
    context.fillText(one.word, box[0], y + 4);
  }

  // ------------------------------------------------------------------ hands

  const where = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  function hit([x, y]) {
    let [best, least] = [null, REACH];
    for (const one of [main, ...near, ...points]) {
      if (!one) continue;
      const [a, b] = place(one);
      const far = Math.hypot(a - x, b - y);
      if (far < least) [best, least] = [one, far];
    }
    return best;
  }

  canvas.addEventListener("pointerdown", (event) => {
    canvas.setPointerCapture(event.pointerId);
    cancelAnimationFrame(moving);
    if (!fingers.size) dragged = 0;
    fingers.set(event.pointerId, where(event));
  });
  canvas.addEventListener("pointermove", (event) => {
    const [before, now] = [fingers.get(event.pointerId), where(event)];
    if (!before) {
      const found = hit(now);
      if (found !== hover) {
        hover = found;
        canvas.style.cursor = found ? "pointer" : "grab";
        redraw();
      }
      return;
    }
    const other = [...fingers].find(([id]) => id !== event.pointerId)?.[1];
    dragged += Math.hypot(now[0] - before[0], now[1] - before[1]);
    if (other)
      zoom(
        Math.hypot(now[0] - other[0], now[1] - other[1]) /
          Math.max(1, Math.hypot(before[0] - other[0], before[1] - other[1])),
        [(now[0] + other[0]) / 2, (now[1] + other[1]) / 2],
      );
    else if (dragged > 3) pan(now[0] - before[0], now[1] - before[1]);
    fingers.set(event.pointerId, now);
  });
  canvas.addEventListener("pointerup", (event) => {
    fingers.delete(event.pointerId);
    const found = hit(where(event));
    if (dragged <= 3 && found && !fingers.size) chosen(found.word);
  });
  canvas.addEventListener("pointercancel", (event) => fingers.delete(event.pointerId));
  canvas.addEventListener("pointerleave", () => {
    if (hover) {
      hover = null;
      redraw();
    }
  });
  canvas.addEventListener(
    "wheel",
    (event) => {
      event.preventDefault();
      zoom(Math.exp(-event.deltaY / 400), where(event));
    },
    { passive: false },
  );
  canvas.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key in WAYS) pan(...WAYS[event.key].map((one) => 40 * one));
    else if (event.key === "+" || event.key === "=") zoom(1.3);
    else if (event.key === "-") zoom(1 / 1.3);
    else if (event.key === "0") to(all());
    else return;
    event.preventDefault();
  });

  const fitting = new ResizeObserver(() => {
    canvas.width = 0;
    redraw();
  });
  fitting.observe(canvas);
  const lights = new MutationObserver(redraw);
  lights.observe(document.documentElement, { attributeFilter: ["data-theme"] });
  const dark = matchMedia("(prefers-color-scheme: dark)");
  dark.addEventListener("change", redraw);

  const tools = h(
    "div",
    { class: "row", style: { margin: ".4rem 0" } },
    button("+", () => zoom(1.5), { class: "small", "aria-label": "nearer" }),
    button("−", () => zoom(1 / 1.5), { class: "small", "aria-label": "farther" }),
    button("all", () => to(all()), { class: "small" }),
    button("to the word", () => main && close(), { class: "small" }),
  );
  function close() {
    const far = near.map((one) => Math.hypot(one.x - main.x, one.y - main.y)).sort((a, b) => a - b);
    const [width, height] = size();
    to({
      x: main.x,
      y: main.y,
      scale: Math.min(
        whole * 20,
        Math.max(
          whole,
          (Math.min(width, height) / 2 - MARGIN) / (far[Math.floor(far.length * 0.8)] || 1),
        ),
      ),
    });
  }

  return {
    element: h("div", canvas, tools),
    canvas,
    set: (others) => {
      points = others;
      fits = false;
      redraw();
    },
    mark: (word, others) => {
      [main, near] = [word, others];
      redraw();
    },
    stop: () => {
      cancelAnimationFrame(moving);
      cancelAnimationFrame(pending);
      fitting.disconnect();
      lights.disconnect();
      dark.removeEventListener("change", redraw);
    },
  };
}

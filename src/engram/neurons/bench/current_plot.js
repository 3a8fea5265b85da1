// The injected current, which one draws with the pointer or the arrow keys.

import { h } from "../../dom.js";
import { cssVariable, dot, line } from "../../canvas_plot.js";
import { CELLS, POINTS } from "./cells.js";
import { valueRange } from "./recording.js";
import { timePlot } from "./traces.js";

const clamp = (x, [low, high]) => Math.max(low, Math.min(high, x));

// `began` is called when a current of another kind becomes a drawn one, `changed` when the drawn one changes.
export class CurrentPlot {
  constructor({ protocol, recording, began, changed }) {
    Object.assign(this, { protocol, recording, began, changed });
    this.pen = Math.round(POINTS / 4); // a point of the drawn current
    this.last = null; // where the pointer was
    [this.label, this.status] = [h("span"), h("span", { "aria-live": "polite" })];
    const redraw = () => this.redraw();
    this.plot = timePlot(recording, {
      label: "injected current: draw on it, or use the arrow keys",
      height: 140,
      yAxis: "",
      xAxis: "ms",
      attributes: {
        tabindex: 0,
        role: "application",
        onkeydown: (event) => this.onKey(event),
        onfocus: redraw,
        onblur: redraw,
      },
      paint: (ink, X, Y, response) => this.paint(ink, X, Y, response),
    });
    this.followPointer(this.plot.canvas);
    const hint = h("b", "draw here, or use the arrow keys");
    this.elements = [
      h("p", { class: "small soft row" }, this.label, hint, this.status),
      h("div", this.plot.canvas),
    ];
  }

  paint(ink, X, Y, { t, J }) {
    const { protocol, pen } = this;
    const times = protocol.times();
    const color = cssVariable("--warm");
    line(ink, X, Y, t, J, { color });
    if (protocol.kind === "drawn") line(ink, X, Y, times, protocol.points, { color, width: 2.5 });
    if (document.activeElement === this.plot.canvas)
      dot(ink, X(times[pen]), Y(this.height(pen)), cssVariable("--ink"), 4);
  }

  fit() {
    const { cell, duration, J } = this.recording.response;
    this.plot.x = [0, duration];
    this.plot.y = valueRange([J], { least: CELLS[cell].heights });
  }

  showCell() {
    const { isLif, about } = this.protocol;
    this.label.textContent = `injected ${isLif ? "input" : "current"}, ${about.unit}`;
  }

  redraw() {
    this.plot.redraw();
  }

  stop() {
    this.plot.stop();
  }

  // Height of the current at a point.
  height(i) {
    if (this.protocol.kind === "drawn") return this.protocol.points[i];
    const { J } = this.recording.response;
    return J[Math.min(J.length - 1, Math.round((i / (POINTS - 1)) * J.length))];
  }

  within(x) {
    return clamp(x, this.protocol.about.heights);
  }

  // Make the present current the drawn one.
  begin() {
    if (this.protocol.kind === "drawn" || !this.recording.response) return;
    const heights = Array.from({ length: POINTS }, (_, i) => this.within(this.height(i)));
    this.protocol.setDrawn(Float32Array.from(heights));
    this.began();
  }

  followPointer(canvas) {
    canvas.addEventListener("pointerdown", (event) => {
      if (!this.recording.response || event.button) return;
      canvas.setPointerCapture(event.pointerId);
      this.begin();
      this.last = null;
      this.drawTo(event);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!canvas.hasPointerCapture(event.pointerId)) return;
      for (const one of [...(event.getCoalescedEvents?.() ?? []), event]) this.drawTo(one);
    });
  }

  // Draw a line from where the pointer was.
  drawTo(event) {
    const { points, duration } = this.protocol;
    const [t, J] = this.plot.place(event);
    const at = clamp(Math.round((t / duration) * (POINTS - 1)), [0, POINTS - 1]);
    const to = { at, J: this.within(J) };
    const from = this.last ?? to;
    for (let i = Math.min(from.at, at); i <= Math.max(from.at, at); i += 1)
      points[i] =
        from.at === at ? to.J : from.J + ((to.J - from.J) * (i - from.at)) / (at - from.at);
    [this.last, this.pen] = [to, at];
    this.redraw();
    this.changed();
  }

  onKey(event) {
    const { protocol } = this;
    const far = event.shiftKey ? 10 : 1;
    const across = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    const up = { ArrowUp: 1, ArrowDown: -1 }[event.key];
    if (!this.recording.response || (!across && !up)) return;
    event.preventDefault();
    if (across) this.pen = clamp(this.pen + across * far, [0, POINTS - 1]);
    else this.raise(up * far);
    this.redraw();
    const time = protocol.times()[this.pen];
    this.status.textContent = `pen at ${time.toFixed(0)} ms, ${this.height(this.pen).toFixed(2)}`;
  }

  // Raise the current around the pen by some eightieths of its range.
  raise(steps) {
    this.begin();
    const { points, about } = this.protocol;
    const [low, high] = about.heights;
    for (let i = Math.max(0, this.pen - 5); i <= Math.min(POINTS - 1, this.pen + 5); i += 1)
      points[i] = this.within(points[i] + (steps * (high - low)) / 80);
    this.changed();
  }
}

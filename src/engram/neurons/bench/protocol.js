// Protocol of the bench: the neuron and the injected current, as kept in the URL, sent to the lab, and given to a terminal.

import { setQuery, getQuery } from "../../lab.js";
import { CELLS, CURRENT, POINTS, decodeCurrent, encodeCurrent, parseSettings } from "./cells.js";

const DURATION = 200; // ms

export class Protocol {
  constructor() {
    this.values = parseSettings(getQuery("set", "{}")); // values of the sliders that were moved, by cell
    this.cell = getQuery("cell", "hodgkin-huxley");
    this.kind = getQuery("current", "step");
    this.seed = Number(getQuery("seed", "0"));
    this.duration = Number(getQuery("ms", String(DURATION)));
    if (!CELLS[this.cell]) this.cell = "hodgkin-huxley";
    if (!CURRENT[this.kind]) this.kind = "step";
    this.points = decodeCurrent(getQuery("drawn"), this.cell);
  }

  get isLif() {
    return this.cell === "lif";
  }

  get about() {
    return CELLS[this.cell];
  }

  // Rows of the sliders of the neuron itself, by name.
  get neuron() {
    return { ...this.about.neuron, ...this.about.more };
  }

  row(name) {
    return { ...this.neuron, ...this.about.current }[name];
  }

  value(name) {
    return this.values[this.cell]?.[name] ?? this.row(name)[4];
  }

  setValue(name, x) {
    (this.values[this.cell] ??= {})[name] = x;
  }

  setCell(cell) {
    this.cell = cell;
    this.points = decodeCurrent("", cell);
    if (this.kind === "drawn") this.kind = "step";
  }

  // Apply a preset: a current and some values, all others as at first.
  apply(kind = "step", values = {}) {
    this.values[this.cell] = { ...values };
    [this.kind, this.seed] = [kind, 0];
  }

  setDrawn(heights) {
    this.points = heights;
    this.setValue("noise", 0);
    this.kind = "drawn";
  }

  // Times of the points of a drawn current.
  times() {
    return Array.from({ length: POINTS }, (_, i) => (i / (POINTS - 1)) * this.duration);
  }

  // Parameters of the neuron, as endpoints take them.
  parameters() {
    const own = Object.keys(this.neuron).map((name) => [name, this.value(name)]);
    return {
      cell: this.cell,
      [this.isLif ? "lif" : "hodgkin_huxley"]: Object.fromEntries(own),
    };
  }

  stimulus() {
    const onset_ms = this.value("onset_ms");
    return {
      kind: this.kind,
      seed: this.seed,
      noise: this.value("noise"),
      ...(this.kind === "drawn"
        ? { points: Array.from(this.points) }
        : { amplitude: this.value("amplitude"), period_ms: this.value("period_ms") }),
      ...(["step", "ramp", "pulses"].includes(this.kind) && {
        onset_ms,
        offset_ms: onset_ms + this.value("length_ms"),
        width_ms: this.value("width_ms"),
      }),
    };
  }

  // Whether a terminal needs the current as a file.
  get needsFile() {
    return this.kind === "drawn" || this.kind === "sine";
  }

  command() {
    const flag = (name, x) => ` --${name.replaceAll("_", "-")} ${x}`;
    const own = Object.entries(this.neuron)
      .filter(([name, row]) => this.value(name) !== row[4])
      .map(([name]) => flag(name, this.value(name)))
      .join("");
    const begin = `engram run ${this.cell} --steps ${this.duration}${this.isLif ? " --neurons 1" : ""}${own}`;
    if (this.needsFile) return `${begin} --data current.csv`;
    const { kind, amplitude, noise, onset_ms, offset_ms, width_ms, period_ms } = this.stimulus();
    const pulses = kind === "pulses";
    const times =
      kind === "noise"
        ? ""
        : flag("onset_ms", onset_ms) +
          flag("offset_ms", pulses ? onset_ms + period_ms + width_ms : offset_ms) +
          (pulses ? flag("period_ms", period_ms) + flag("width_ms", width_ms) : "");
    return `${begin} --stimulus ${kind === "noise" ? "constant" : kind}${flag("amplitude", amplitude)}${times}${flag("noise", noise)}`;
  }

  store() {
    setQuery({
      cell: this.cell,
      current: this.kind,
      seed: this.seed || "",
      ms: this.duration === DURATION ? "" : this.duration,
      set: JSON.stringify(this.values),
      drawn: this.kind === "drawn" ? encodeCurrent(this.points, this.cell) : "",
    });
  }
}

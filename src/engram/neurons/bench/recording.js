// Recording of a neuron: its response to the injected current, and the moment under the time cursor.

import { h } from "../../dom.js";
import { decodeArray } from "../../socket.js";
import { CELLS } from "./cells.js";

const number = (x, digits) => x.toFixed(digits).replace("-", "−");

export class Recording {
  constructor() {
    this.cursor = 0.35; // as a fraction of the duration
    this.response = null;
  }

  load({ cell, lif, duration_ms }, found) {
    const series = Object.entries(found.series).map(([name, row]) => [
      name,
      decodeArray(row).values,
    ]);
    this.response = {
      cell,
      tau: lif?.tau_m_ms,
      duration: duration_ms,
      t: decodeArray(found.t).values,
      J: decodeArray(found.J).values,
      spikes: found.spikes, // times, of very many only the first
      count: found.count,
      series: Object.fromEntries(series),
    };
  }

  get isLif() {
    return this.response.cell === "lif";
  }

  get voltage() {
    const { series } = this.response;
    return series.V ?? series.v;
  }

  // Index of the moment under the cursor.
  get index() {
    const last = this.response.t.length - 1;
    return Math.min(last, Math.max(0, Math.round(this.cursor * last)));
  }

  // How many spikes there are, and their rate.
  describe() {
    const { spikes, count, duration } = this.response;
    const gaps = spikes.slice(1).map((time, i) => time - spikes[i]);
    const mean = gaps.reduce((a, b) => a + b, 0) / gaps.length;
    const rate = gaps.length ? `, ${(1000 / mean).toFixed(0)} Hz from the first to the last` : "";
    return `${count === 1 ? "1 spike" : `${count} spikes`} in ${duration} ms${rate}`;
  }

  // Values at the cursor.
  read() {
    const { t, J, series } = this.response;
    const at = this.index;
    return (
      `${number(t[at], 1)} ms: ` +
      (this.isLif
        ? `input ${number(J[at], 2)}, v ${number(series.v[at], 3)}, dv/dt ${number(series.dv_dt[at], 3)} per ms`
        : `J ${number(J[at], 1)} µA/cm², V ${number(series.V[at], 1)} mV, m ${number(series.m[at], 2)}, h ${number(series.h[at], 2)}, n ${number(series.n[at], 2)}`)
    );
  }

  // Download the current, a value for each time step, as `engram run --data` reads it.
  saveCurrent() {
    const { cell, duration, J } = this.response;
    const steps = Math.round(duration / CELLS[cell].step);
    const heights = Array.from({ length: steps }, (_, i) =>
      J[Math.floor((i / steps) * J.length)].toFixed(4),
    );
    const address = URL.createObjectURL(new Blob([heights.join("\n"), "\n"], { type: "text/csv" }));
    h("a", { href: address, download: "current.csv" }).click();
    setTimeout(() => URL.revokeObjectURL(address), 1000);
  }
}

// Range of all values of some rows, with a margin, and at least a given range.
export function valueRange(rows, { minMargin = 0, least = [Infinity, -Infinity] } = {}) {
  let [low, high] = [Infinity, -Infinity];
  for (const row of rows) for (const x of row) [low, high] = [Math.min(low, x), Math.max(high, x)];
  const margin = Math.max(minMargin, (high - low) * 0.06);
  return [Math.min(least[0], low - margin), Math.max(least[1], high + margin)];
}

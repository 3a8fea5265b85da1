// Activity of a simulated population in the last seconds: decoded values, input, exact integral, and some spikes.

import { decodeArray } from "../../socket.js";

export const [SHOWN_S, RASTER_S] = [6, 1];

export class Activity {
  constructor(dimensions) {
    this.t = [];
    this.output = Array.from({ length: dimensions }, () => []);
    this.u = [];
    [this.targetT, this.target] = [[0], [0]];
    [this.spikeT, this.spikeNeuron] = [[], []];
  }

  append(part) {
    const [output, u] = [decodeArray(part.output), decodeArray(part.u)];
    part.t.forEach((ms, i) => {
      this.t.push(ms / 1000);
      this.output.forEach((row, k) => row.push(output.at(i, k)));
      this.u.push(u.at(i, 0));
    });
    this.targetT.push(part.t.at(-1) / 1000);
    this.target.push(this.target.at(-1) + part.target_change[0]);
    for (const ms of part.spike_ms) this.spikeT.push(ms / 1000);
    this.spikeNeuron.push(...part.spike_neuron);
    this.trim(this.t.at(-1));
  }

  trim(now) {
    const cut = (before, times, ...rows) => {
      const first = times.findIndex((t) => t >= before);
      if (first > 0) [times, ...rows].forEach((one) => one.splice(0, first));
    };
    cut(now - SHOWN_S, this.t, this.u, ...this.output);
    cut(now - SHOWN_S - 0.1, this.targetT, this.target);
    const late = this.spikeT.flatMap((t, i) => (t >= now - RASTER_S ? [i] : []));
    this.spikeT = late.map((i) => this.spikeT[i]);
    this.spikeNeuron = late.map((i) => this.spikeNeuron[i]);
  }

  // The decoded values now.
  state() {
    return this.output.map((row) => row.at(-1) ?? 0);
  }

  // Mean of the first value over the last 50 ms.
  mean() {
    const row = this.output[0].slice(-50);
    return row.reduce((sum, x) => sum + x, 0) / Math.max(1, row.length);
  }

  // Rotations per second of the two values, over the last second.
  frequency() {
    const [one, two] = this.output.map((row) => row.slice(-1000));
    let angle = 0;
    for (let i = 1; i < one.length; i += 1)
      angle += Math.atan2(
        one[i - 1] * two[i] - two[i - 1] * one[i],
        one[i - 1] * one[i] + two[i - 1] * two[i],
      );
    return angle / (2 * Math.PI) / Math.max(0.001, (one.length - 1) / 1000);
  }
}

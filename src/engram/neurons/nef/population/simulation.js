// A running integrator or oscillator, simulated in parts of some milliseconds, and what pushes it.

import { prefersReducedMotion } from "../../dom.js";
import { request } from "../../socket.js";
import { Activity } from "./activity.js";

const [PART_MS, DEMONSTRATION_MS, KICK_MS] = [40, 3500, 100];
const DIMENSIONS = { integrator: 1, oscillator: 2 };

export class Simulation {
  // `values` are those of the sliders; `painted` is called after every part, `toggled` when it starts or pauses.
  constructor({ system, values, painted, toggled, failed }) {
    Object.assign(this, { values, painted, toggled, failed });
    [this.push, this.kick, this.target] = [0, 0, null];
    // number of the simulation, the one with a request in flight, whether it runs
    [this.turn, this.busy, this.live] = [0, null, false];
    this.clear(system);
  }

  clear(system) {
    this.system = system;
    this.state = "";
    this.activity = new Activity(DIMENSIONS[system]);
  }

  // Simulate with an input: rows of one or two numbers, a millisecond each.
  async simulate(rows) {
    const mine = this.turn;
    const { many, tau, hz } = this.values;
    const frequency_hz = this.system === "oscillator" ? hz : 1;
    try {
      const end = await request(
        "population.run",
        {
          system: this.system,
          state: this.state,
          input: rows.flat(),
          model: { neurons: many, tau_synapse_ms: tau, frequency_hz },
        },
        (part) => {
          if (mine !== this.turn) return;
          this.activity.append(part);
          this.painted();
        },
      );
      if (mine === this.turn) this.state = end.state;
    } catch (error) {
      if (mine !== this.turn) return;
      this.pause();
      this.failed(error);
    }
  }

  // The input of the next millisecond.
  input() {
    if (this.system === "integrator") return [this.values.u + this.push];
    if (this.kick > 0) {
      this.kick -= 1;
      return [10, 0];
    }
    const at = this.activity.state();
    return this.target ? this.target.map((x, k) => 8 * (x - at[k])) : [0, 0];
  }

  async play() {
    this.setLive(true);
    if (this.busy === this.turn) return; // the request in flight continues
    const mine = (this.busy = this.turn);
    let due = performance.now();
    while (mine === this.turn && this.live) {
      const steps = Math.max(4, Math.round(PART_MS * this.values.pace));
      if (!document.hidden) await this.simulate(Array.from({ length: steps }, () => this.input()));
      due = Math.max(due + steps / this.values.pace, performance.now() - 100);
      await new Promise((resolve) => {
        setTimeout(resolve, Math.max(document.hidden ? 300 : 0, due - performance.now()));
      });
    }
    if (mine === this.turn) this.busy = null;
  }

  pause() {
    this.setLive(false);
  }

  setLive(live) {
    this.live = live;
    this.toggled(live);
  }

  // Restart with a demonstration: pulses up and down for an integrator, a kick for an oscillator.
  async restart(system = this.system) {
    this.turn += 1;
    this.clear(system);
    this.setLive(!prefersReducedMotion());
    const mine = (this.busy = this.turn);
    const pulses = (ms) => (ms >= 300 && ms < 900 ? 1.2 : ms >= 1700 && ms < 2500 ? -1.5 : 0);
    const demonstration = (_, ms) =>
      system === "integrator" ? [pulses(ms)] : [ms < KICK_MS ? 10 : 0, 0];
    await this.simulate(Array.from({ length: DEMONSTRATION_MS }, demonstration));
    if (mine !== this.turn) return;
    this.busy = null;
    if (this.live) this.play();
  }

  // Change what acts on the system (push, kick or target), which starts it if it is paused.
  act(changes) {
    Object.assign(this, changes);
    if (!this.live) this.play();
  }

  // Push the integrator in a direction until release(), or kick the oscillator.
  pushTo(direction) {
    this.act({ push: direction });
  }

  release() {
    this.push = 0;
  }

  startKick() {
    this.act({ kick: KICK_MS });
  }

  stop() {
    this.turn += 1;
  }
}

// Population: tuning curves and decoding of an ensemble; a running integrator or oscillator.

import { fill, h } from "../../dom.js";
import { dynamics } from "./dynamics.js";
import { representation } from "./representation.js";

export function mount(holder) {
  const [above, below] = [h("div"), h("div")];
  fill(holder, above, below);
  const cleanups = [representation(above), dynamics(below)];
  return () => cleanups.forEach((cleanup) => cleanup());
}

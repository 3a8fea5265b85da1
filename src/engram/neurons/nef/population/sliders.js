// Sliders whose values are kept in the URL, except the input `u`: { name: [label, low, high, step, value] }

import { debounce, slider } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";

export const format = (x) => String(Number(x.toPrecision(3))).replace("-", "−");

// Values and elements by name; `changed(name)` is called when one is moved.
export function sliders(holder, table, changed) {
  const [values, made] = [{}, {}];
  const store = debounce(250, () => {
    if (!holder.isConnected) return; // another page is shown by now
    const stored = Object.entries(table).map(([name, row]) => [
      name,
      values[name] === row[4] || name === "u" ? "" : values[name],
    ]);
    setQuery(Object.fromEntries(stored));
  });
  for (const [name, [label, low, high, step, otherwise]] of Object.entries(table)) {
    values[name] = Number(getQuery(name, otherwise));
    made[name] = slider({
      label,
      name,
      low,
      high,
      step,
      value: values[name],
      show: format,
      change: (x) => {
        values[name] = x;
        store();
        changed(name);
      },
    });
  }
  return { values, made };
}

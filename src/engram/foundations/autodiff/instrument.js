// Expression graph: values from the left to the right, gradients from the right to the left, one Var at a time.

import { button, fill, h, debounce, slider, prefersReducedMotion } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";
import { channel } from "../../socket.js";

const [WIDE, HIGH, RADIUS] = [150, 84, 25];
const EXAMPLES = [
  "x * y + sin(x)",
  "logistic(w * x + b)",
  "(a + b)^2 / c",
  "log(1 + exp(-t * (w * x + b)))",
  "tanh(x) * tanh(x) + relu(y - x)",
];

export function mount(holder) {
  const latest = channel();
  const text = h("input", {
    type: "text",
    name: "expression",
    value: getQuery("text", EXAMPLES[0]),
    spellcheck: "false",
    "aria-label": "expression",
    oninput: () => {
      known = Infinity;
      changed();
    },
  });
  const values = JSON.parse(getQuery("values", "{}"));
  const sliders = h("div");
  const drawing = h("div", { class: "scroll" });
  const message = h("p", { role: "status" });
  let graph = null;
  let known = Infinity; // how many gradients are known
  let playing = null;

  const steps = [
    button("⏮ forget gradients", () => to(0)),
    button("◀", () => to(Math.min(known, graph.nodes.length) - 1), {
      "aria-label": "one gradient less",
    }),
    button("step back ▶", () => to(Math.min(known, graph.nodes.length) + 1), { class: "main" }),
    button("play", play),
    button("all ⏭", () => to(Infinity)),
  ];
  fill(
    holder,
    h(
      "div",
      { class: "row" },
      text,
      EXAMPLES.map((one) =>
        button(
          one,
          () => {
            text.value = one;
            known = Infinity;
            changed();
          },
          { class: "small" },
        ),
      ),
    ),
    h(
      "div",
      { class: "two" },
      h(
        "div",
        { class: "panel" },
        sliders,
        h(
          "p",
          { class: "soft small" },
          "+ − * / ^ ( ), and abs, arctan, cos, exp, log, logistic, relu, sin, softplus, sqrt, tanh. A gradient says how much the result changes when a Var does.",
        ),
      ),
      h("div", h("div", { class: "row" }, steps), message, drawing),
    ),
  );

  const changed = debounce(120, look);
  async function look() {
    try {
      const names = graph?.text === text.value ? graph.names : null;
      let found = await latest("autodiff", {
        text: text.value,
        values: (names ?? []).map((name) => values[name] ?? 1),
      });
      if (!names && found.names.some((name) => values[name] !== undefined)) {
        found = await latest("autodiff", {
          text: text.value,
          values: found.names.map((name) => values[name] ?? 1),
        });
      }
      const same = graph && graph.names.join() === found.names.join();
      graph = { ...found, text: text.value };
      if (!same) offer();
      setQuery({
        text: text.value,
        values: JSON.stringify(
          Object.fromEntries(graph.names.map((name) => [name, values[name] ?? 1])),
        ),
      });
      draw();
    } catch (error) {
      message.textContent = error.message;
      fill(drawing);
      graph = null;
    }
  }

  function offer() {
    fill(
      sliders,
      graph.names.map((name) =>
        slider({
          label: name,
          name,
          low: -5,
          high: 5,
          step: 0.1,
          value: values[name] ?? 1,
          show: (x) => x.toFixed(1),
          change: (x) => {
            values[name] = x;
            changed();
          },
        }),
      ),
    );
  }

  function to(count) {
    if (!graph) return;
    clearInterval(playing);
    playing = null;
    known = Math.max(0, count);
    draw();
  }

  function play() {
    if (!graph) return;
    to(0);
    if (prefersReducedMotion()) {
      to(Infinity);
      return;
    }
    playing = setInterval(() => {
      known += 1;
      draw();
      if (known >= graph.nodes.length) clearInterval(playing);
    }, 700);
  }

  function draw() {
    const { nodes, edges } = graph;
    const top = Math.min(...nodes.map((node) => node.row));
    const place = (node) => [60 + node.column * WIDE, 60 + (node.row - top) * HIGH];
    const [width, height] = [
      120 + Math.max(...nodes.map((node) => node.column)) * WIDE,
      130 + (Math.max(...nodes.map((node) => node.row)) - top) * HIGH,
    ];
    const newest = nodes.find((node) => node.step === Math.min(known, nodes.length) - 1);
    const lines = edges.map(([a, b]) => {
      const [[x1, y1], [x2, y2]] = [place(nodes[a]), place(nodes[b])];
      const back = nodes[a].step < known;
      return h("line", {
        x1,
        y1,
        x2,
        y2,
        stroke: back ? "var(--warm)" : "var(--line)",
        "stroke-width": back ? 2.5 : 2,
      });
    });
    const circles = nodes.map((node) => {
      const [x, y] = place(node);
      const computed = node.step < known;
      return h(
        "g",
        { data: { node: node.label } },
        h("circle", {
          cx: x,
          cy: y,
          r: RADIUS,
          fill: node === newest ? "var(--warm)" : computed ? "var(--accent)" : "var(--card)",
          stroke: "var(--accent)",
          "stroke-width": 2,
        }),
        h(
          "text",
          { x, y: y - RADIUS - 8, "text-anchor": "middle", fill: "var(--ink)", "font-size": 14 },
          `${node.label} = ${node.value}`,
        ),
        computed &&
          h(
            "text",
            {
              x,
              y: y + 5,
              "text-anchor": "middle",
              fill: node === newest || !computed ? "var(--paper)" : "var(--on-accent)",
              "font-size": 12,
              "font-weight": 600,
              class: "gradient",
            },
            node.gradient,
          ),
        h(
          "title",
          computed
            ? `${node.label}: value ${node.value}, gradient ${node.gradient}`
            : `${node.label}: value ${node.value}`,
        ),
      );
    });
    fill(
      drawing,
      h(
        "svg",
        {
          viewBox: `0 0 ${width} ${height}`,
          width,
          height,
          role: "img",
          "aria-label": `graph of ${graph.text}`,
        },
        lines,
        circles,
      ),
    );
    const count = Math.min(known, nodes.length);
    message.textContent =
      count === 0
        ? "Values are known; gradients are not."
        : newest && count < nodes.length
          ? `${count} of ${nodes.length} gradients: ∂/∂(${newest.label}) = ${newest.gradient}`
          : `All ${nodes.length} gradients are known.`;
  }

  look();
  return () => {
    clearInterval(playing);
    latest.stop();
  };
}

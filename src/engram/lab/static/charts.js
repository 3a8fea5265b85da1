// Plotly in the colors of the page, light or dark.

export const COLORS = [
  "#0072B2",
  "#D55E00",
  "#009E73",
  "#CC79A7",
  "#E69F00",
  "#56B4E9",
  "#8C8C8C",
  "#785EF0",
  "#999933",
  "#DC267F",
];
const GRID = "rgba(128,128,128,0.2)";
const charts = new Set();
const resizing = new ResizeObserver((changes) => {
  for (const { target } of changes)
    if (target.isConnected && target._fullLayout) Plotly.Plots.resize(target);
});

const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();

export function recolor() {
  for (const holder of charts) {
    if (holder.isConnected) Plotly.relayout(holder, { "font.color": ink() });
    else charts.delete(holder);
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolor);

export function layout(more = {}) {
  const axis = { gridcolor: GRID, zerolinecolor: GRID };
  return {
    height: 300,
    margin: { l: 56, r: 16, t: 12, b: 44 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    colorway: COLORS,
    font: { family: "system-ui, sans-serif", size: 13, color: ink() },
    hovermode: "closest",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 },
    modebar: { bgcolor: "rgba(0,0,0,0)", color: "#8c8c8c" },
    ...more,
    xaxis: { ...axis, ...more.xaxis },
    yaxis: { ...axis, ...more.yaxis },
  };
}

// Draw a chart, or update it.
export function draw(holder, data, more = {}) {
  return react(holder, data, layout(more), "hover");
}

function react(holder, data, options, displayModeBar) {
  if (!charts.has(holder)) resizing.observe(holder);
  charts.add(holder);
  return Plotly.react(holder, data, options, { displaylogo: false, displayModeBar });
}

// Draw a figure of Python with its own layout and the text color of the page.
export function drawFigure(holder, { data, layout: figureLayout }) {
  const isImage = data.length === 0 || data.some(({ type }) => type === "image");
  const font = { ...figureLayout.font, color: ink() };
  return react(holder, data, { ...figureLayout, font }, isImage ? false : "hover");
}

const waiting = new WeakMap();
const visibility = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) {
      if (!isIntersecting || !waiting.has(target)) continue;
      drawFigure(target, waiting.get(target));
      waiting.delete(target);
    }
  },
  { rootMargin: "200px" },
);

// Draw a figure when it becomes visible: a page may hold many, updated at every checkpoint.
export function drawFigureWhenVisible(holder, figure) {
  waiting.set(holder, figure);
  holder.style.setProperty("min-height", `${figure.layout.height ?? 300}px`);
  visibility.unobserve(holder);
  visibility.observe(holder);
}

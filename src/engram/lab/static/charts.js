// Plotly in the colours of the page, light or dark.

export const COLOURS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#8C8C8C", "#785EF0", "#999933", "#DC267F"];
const GRID = "rgba(128,128,128,0.2)";
const drawn = new Set();
const fitting = new ResizeObserver((changes) => { for (const { target } of changes) if (target.isConnected && target._fullLayout) Plotly.Plots.resize(target); });

const ink = () => getComputedStyle(document.documentElement).getPropertyValue("--ink").trim();

export function recolour() {
  for (const holder of drawn) {
    if (holder.isConnected) Plotly.relayout(holder, { "font.color": ink() });
    else drawn.delete(holder);
  }
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);

export function layout(more = {}) {
  const axis = { gridcolor: GRID, zerolinecolor: GRID };
  return {
    height: 300, margin: { l: 56, r: 16, t: 12, b: 44 }, paper_bgcolor: "rgba(0,0,0,0)", plot_bgcolor: "rgba(0,0,0,0)",
    colorway: COLOURS, font: { family: "system-ui, sans-serif", size: 13, color: ink() }, hovermode: "closest",
    legend: { orientation: "h", y: 1.02, yanchor: "bottom", x: 0 }, modebar: { bgcolor: "rgba(0,0,0,0)", color: "#8c8c8c" },
    ...more, xaxis: { ...axis, ...more.xaxis }, yaxis: { ...axis, ...more.yaxis },
  };
}

// Draw, or draw anew with as little work as plotly can.
export function draw(holder, data, more = {}) {
  return react(holder, data, layout(more), "hover");
}

function react(holder, data, how, displayModeBar) {
  if (!drawn.has(holder)) fitting.observe(holder);
  drawn.add(holder);
  return Plotly.react(holder, data, how, { displaylogo: false, displayModeBar });
}

// A figure that Python drew: its own layout, our ink.
export function drawFigure(holder, { data, layout: own }) {
  const pictures = data.length === 0 || data.some(({ type }) => type === "image");
  const font = { ...own.font, color: ink() };
  return react(holder, data, { ...own, font }, pictures ? false : "hover");
}

const unseen = new WeakMap();
const seeing = new IntersectionObserver((places) => {
  for (const { target, isIntersecting } of places) {
    if (!isIntersecting || !unseen.has(target)) continue;
    drawFigure(target, unseen.get(target));
    unseen.delete(target);
  }
}, { rootMargin: "200px" });

// The same as soon as somebody can see it: a page may hold many figures, anew at every checkpoint.
export function drawFigureWhenSeen(holder, figure) {
  unseen.set(holder, figure);
  holder.style.setProperty("min-height", `${figure.layout.height ?? 300}px`);
  seeing.unobserve(holder);
  seeing.observe(holder);
}

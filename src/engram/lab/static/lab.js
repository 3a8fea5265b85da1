// The shell: which page the address names, the bar at the top, light and dark.

import { recolour } from "./charts.js";
import { button, fill, h, notice } from "./dom.js";
import { onLink } from "./link.js";

const PAGES = {
  "": "home", systems: "system", runs: "runs", compare: "compare", data: "data", source: "source", instruments: "instrument",
};
const TABS = [["/", "Systems"], ["/instruments", "Instruments"], ["/runs", "Runs"], ["/data", "Data"]];
const main = document.getElementById("main");
let leave = () => {};
let turn = 0;

// Go to an address of the lab without loading it anew.
export function visit(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"]({}, "", address);
  return show();
}

// Keep a setting of the page in the address, so that a reload or a link brings it back.
export function keep(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState({}, "", location.pathname + (text ? `?${text}` : "") + location.hash);
}

export const kept = (name, otherwise = "") => new URLSearchParams(location.search).get(name) ?? otherwise;

// Settings go to the address when the hand rests: browsers refuse to have it changed hundreds of times.
export function remembering() {
  let [timer, changes] = [null, {}];
  return {
    keep: (more) => { Object.assign(changes, more); clearTimeout(timer); timer = setTimeout(() => { keep(changes); changes = {}; }, 150); },
    stop: () => clearTimeout(timer),
  };
}

async function show() {
  const mine = (turn += 1);
  const [, room, ...rest] = location.pathname.split("/").map(decodeURIComponent);
  leave();
  leave = () => {};
  top();
  const file = PAGES[room];
  if (!file) { fill(main, h("h1", "There is no such page"), h("p", h("a", { href: "/" }, "To the systems"))); return; }
  try {
    const page = await import(`./pages/${file}.js`);
    if (mine !== turn) return;
    const holder = h("div");
    fill(main, holder);
    const leaving = await page.show(holder, rest.join("/"));
    if (mine !== turn) { leaving?.(); return; }
    leave = leaving ?? (() => {});
    document.title = `${holder.querySelector("h1")?.textContent ?? "lab"} · engram`;
    if (location.hash) document.getElementById(location.hash.slice(1))?.scrollIntoView({ block: "center" });
    else scrollTo(0, 0);
  } catch (error) {
    if (mine !== turn) return;
    fill(main, h("h1", "That did not work"), h("p", error.message));
  }
}

function top() {
  const here = (address) => (address === "/" ? /^\/($|systems)/.test(location.pathname) : location.pathname.startsWith(address));
  fill(document.getElementById("top"), h("nav", { "aria-label": "lab" },
    h("a", { href: "/", class: "mark" }, h("img", { src: "/static/mark.svg", alt: "" }), "engram"),
    TABS.map(([address, text]) => h("a", { href: address, "aria-current": here(address) ? "page" : false }, text)),
    h("span", { class: "space" }),
    h("span", { class: "away", id: "away", hidden: !away }, "the lab does not answer"),
    button("◐", turnLights, { class: "small", "aria-label": "light or dark" })));
}

function turnLights() {
  const dark = document.documentElement.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const next = dark === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
  recolour();
}

let away = false;
onLink((open) => {
  away = !open;
  const line = document.getElementById("away");
  if (line) line.hidden = open;
});

addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const plain = event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (!link || !plain || link.target || link.hasAttribute("download") || link.origin !== location.origin) return;
  if (link.pathname.startsWith("/files/") || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  visit(link.getAttribute("href"));
});
addEventListener("popstate", show);
addEventListener("unhandledrejection", (event) => { event.preventDefault(); notice(event.reason?.message ?? String(event.reason)); });

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
show();

// The shell: routing from the address to a page, the navigation bar, light and dark theme.

import { recolor } from "./charts.js";
import { button, fill, h, notice } from "./dom.js";
import { onConnection } from "./socket.js";

const PAGES = {
  "": "home",
  systems: "system",
  runs: "runs",
  compare: "compare",
  data: "data",
  source: "source",
  instruments: "instrument",
};
const TABS = [
  ["/", "Systems"],
  ["/instruments", "Instruments"],
  ["/runs", "Runs"],
  ["/data", "Data"],
];
const main = document.getElementById("main");
let leave = () => {};
let visits = 0;

// Go to an address of the lab without reloading the page.
export function navigate(address, { replace = false } = {}) {
  history[replace ? "replaceState" : "pushState"]({}, "", address);
  return show();
}

// Store settings of the page in the query string, so that a reload or a link restores them.
export function setQuery(changes) {
  const query = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(changes)) {
    if (value === null || value === undefined || value === "") query.delete(name);
    else query.set(name, value);
  }
  const text = query.toString();
  history.replaceState({}, "", location.pathname + (text ? `?${text}` : "") + location.hash);
}

export const getQuery = (name, fallback = "") =>
  new URLSearchParams(location.search).get(name) ?? fallback;

// Debounced setQuery: browsers refuse to have the address changed hundreds of times.
export function queryWriter() {
  let [timer, changes] = [null, {}];
  return {
    set: (more) => {
      Object.assign(changes, more);
      clearTimeout(timer);
      timer = setTimeout(() => {
        setQuery(changes);
        changes = {};
      }, 150);
    },
    stop: () => clearTimeout(timer),
  };
}

async function show() {
  const current = (visits += 1);
  const [, route, ...rest] = location.pathname.split("/").map(decodeURIComponent);
  leave();
  leave = () => {};
  navigationBar();
  const file = PAGES[route];
  if (!file) {
    fill(main, h("h1", "Page not found"), h("p", h("a", { href: "/" }, "All systems")));
    return;
  }
  try {
    const page = await import(`./pages/${file}.js`);
    if (current !== visits) return;
    const holder = h("div");
    fill(main, holder);
    const cleanUp = await page.show(holder, rest.join("/"));
    if (current !== visits) {
      cleanUp?.();
      return;
    }
    leave = cleanUp ?? (() => {});
    document.title = `${holder.querySelector("h1")?.textContent ?? "lab"} · engram`;
    if (location.hash)
      document.getElementById(location.hash.slice(1))?.scrollIntoView({ block: "center" });
    else scrollTo(0, 0);
  } catch (error) {
    if (current !== visits) return;
    fill(main, h("h1", "Error"), h("p", error.message));
  }
}

function navigationBar() {
  const here = (address) =>
    address === "/"
      ? /^\/($|systems)/.test(location.pathname)
      : location.pathname.startsWith(address);
  fill(
    document.getElementById("top"),
    h(
      "nav",
      { "aria-label": "lab" },
      h(
        "a",
        { href: "/", class: "mark" },
        h("img", { src: "/static/mark.svg", alt: "" }),
        "engram",
      ),
      TABS.map(([address, text]) =>
        h("a", { href: address, "aria-current": here(address) ? "page" : false }, text),
      ),
      h("span", { class: "space" }),
      h(
        "span",
        { class: "disconnected", id: "disconnected", hidden: connected },
        "disconnected from the lab",
      ),
      button("◐", toggleTheme, { class: "small", "aria-label": "toggle light and dark theme" }),
    ),
  );
}

function toggleTheme() {
  const current =
    document.documentElement.dataset.theme ??
    (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
  const next = current === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = next;
  localStorage.setItem("theme", next);
  recolor();
}

let connected = true;
onConnection((open) => {
  connected = open;
  const line = document.getElementById("disconnected");
  if (line) line.hidden = open;
});

addEventListener("click", (event) => {
  const link = event.target.closest?.("a[href]");
  const plain =
    event.button === 0 && !event.metaKey && !event.ctrlKey && !event.shiftKey && !event.altKey;
  if (
    !link ||
    !plain ||
    link.target ||
    link.hasAttribute("download") ||
    link.origin !== location.origin
  )
    return;
  if (link.pathname.startsWith("/files/") || link.getAttribute("href").startsWith("#")) return;
  event.preventDefault();
  navigate(link.getAttribute("href"));
});
addEventListener("popstate", show);
addEventListener("unhandledrejection", (event) => {
  event.preventDefault();
  notice(event.reason?.message ?? String(event.reason));
});

const theme = localStorage.getItem("theme");
if (theme) document.documentElement.dataset.theme = theme;
show();

// Table of all runs in the folder: open, compare, rename, download, delete.

import { button, fill, h, notice } from "../dom.js";
import { navigate } from "../lab.js";
import { request, subscribe } from "../socket.js";
import { address, summary } from "./home.js";

const LABELS = { idle: "stopped", external: "running outside the lab" };
export const BUSY = ["running", "paused", "starting", "queued", "reporting", "external"];

export function state(run) {
  const now = run.damaged
    ? "damaged"
    : run.finished && ["idle", "finished", "stopped"].includes(run.status.state)
      ? "finished"
      : run.status.state;
  return h("span", { class: `state ${now}` }, LABELS[now] ?? now);
}

export async function show(holder) {
  const chosen = new Set();
  const compare = button(
    "Compare",
    () => navigate(`/compare?runs=${[...chosen].map(encodeURIComponent).join(",")}`),
    { disabled: true },
  );
  const body = h("tbody");
  const empty = h(
    "p",
    { hidden: true },
    "There are no runs yet. ",
    h("a", { href: "/" }, "Choose a system"),
    " and press Run.",
  );
  fill(
    holder,
    h("h1", "Runs"),
    h(
      "p",
      { class: "soft" },
      "A run is a folder. Runs that ",
      h("code", "engram run"),
      " starts in this folder appear here too.",
    ),
    h("div", { class: "row" }, compare),
    empty,
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        h(
          "thead",
          h(
            "tr",
            ["", "run", "state", "step", "time", "metrics", ""].map((one) => h("th", one)),
          ),
        ),
        body,
      ),
    ),
  );

  return subscribe("runs", {}, ({ runs }) => {
    empty.hidden = runs.length > 0;
    const names = new Set(runs.map((run) => run.name));
    [...chosen].forEach((name) => names.has(name) || chosen.delete(name));
    fill(body, runs.map(row));
  });

  function row(run) {
    const box = h("input", {
      type: "checkbox",
      checked: chosen.has(run.name),
      "aria-label": `compare ${run.name}`,
      onchange: () => {
        chosen[box.checked ? "add" : "delete"](run.name);
        compare.disabled = chosen.size < 2;
      },
    });
    const busy = BUSY.includes(run.status.state);
    return h(
      "tr",
      { data: { run: run.name } },
      h("td", box),
      h("td", h("a", { href: address(run) }, run.name)),
      h("td", state(run)),
      h(
        "td",
        { class: "number" },
        run.steps ? `${Math.max(run.step, run.status.step)} / ${run.steps}` : "",
      ),
      h("td", { class: "number" }, clock(run.seconds ?? 0)),
      h("td", summary(run)),
      h(
        "td",
        h(
          "div",
          { class: "row" },
          button("rename", () => rename(run), { class: "small", disabled: busy }),
          h(
            "a",
            { class: "small", href: `/files/${run.name}.zip`, download: `${run.name}.zip` },
            "download",
          ),
          button("delete", () => remove(run), { class: "small", disabled: busy }),
        ),
      ),
    );
  }
}

export function clock(seconds) {
  const [hours, minutes, rest] = [
    Math.floor(seconds / 3600),
    Math.floor(seconds / 60) % 60,
    Math.floor(seconds % 60),
  ];
  const two = (x) => String(x).padStart(2, "0");
  return hours ? `${hours}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

async function rename(run) {
  const name = prompt("New name of this run", run.name);
  if (name && name !== run.name) await request("rename", { name: run.name, new: name });
}

async function remove(run) {
  if (!confirm(`Delete ${run.name} and all its files?`)) return;
  await request("delete", { name: run.name });
  notice(`${run.name} was deleted.`, "good");
}

// One run: state, buttons, metrics, curves, and the views of a checkpoint.

import { button, copyable, fill, h, notice } from "../dom.js";
import { request, subscribe } from "../socket.js";
import { Curves } from "../curves.js";
import { checkpointViews } from "./checkpoint_views.js";
import { clock } from "./runs.js";

const STATUS_MS = 500; // shortest interval between updates of the status text

export function runView(holder, name, system) {
  const header = statusLine();
  const buttons = runButtons(name);
  const plots = h("div", { class: "halves curves" });
  const cards = h("ul", { class: "cards" });
  const curves = new Curves(plots);
  const views = checkpointViews(name, system);
  const about = h("div");
  let status = null;
  let details = null;
  let listed = "";
  let updatedAt = 0;
  fill(
    holder,
    h("h2", name, " ", header.state),
    buttons.element,
    header.bar,
    header.progress,
    header.error,
    cards,
    plots,
    views,
    about,
  );

  async function refresh() {
    try {
      details = await request("run", { name });
    } catch {
      details = null;
    }
    if (details) {
      fill(
        cards,
        Object.entries(details.metrics).map(([key, value]) => card(value, key)),
        card(clock(details.seconds), "time"),
      );
      fill(about, settingsOf(name, details));
    }
    if (status) {
      buttons.show(status, details);
      header.show(status, details);
    }
  }

  function update(newStatus) {
    const changed = status?.state !== newStatus.state;
    status = newStatus;
    if (changed) {
      refresh();
      buttons.show(status, details);
    }
    if (changed || status.state !== "running" || performance.now() - updatedAt > STATUS_MS) {
      updatedAt = performance.now();
      header.show(status, details);
    }
  }

  const stop = subscribe(
    "watch",
    { name },
    (part) => {
      curves.add(part);
      if (part.status) update(part.status);
      if (part.checkpoints && JSON.stringify(part.checkpoints) !== listed) {
        listed = JSON.stringify(part.checkpoints);
        views.update(part.checkpoints);
        refresh();
      }
    },
    (problem) => {
      header.error.textContent = problem.message;
    },
  );
  return () => {
    stop();
    views.leave();
    curves.stop();
  };
}

const card = (value, label) => h("li", h("b", value), h("span", label));

// State, progress and error of a run.
function statusLine() {
  const state = h("span", { class: "state" });
  const progress = h("span", { class: "soft" });
  const error = h("p", { class: "error", role: "alert" });
  const bar = h(
    "div",
    { class: "progress", role: "progressbar", "aria-valuemin": "0", "aria-valuemax": "100" },
    h("div"),
  );

  function show(status, details) {
    state.textContent =
      { idle: details?.finished ? "finished" : "stopped", external: "running outside the lab" }[
        status.state
      ] ?? status.state;
    state.className = `state ${status.state}`;
    progress.textContent = status.step
      ? `step ${status.step}${details ? ` of ${details.steps}` : ""}${status.throughput ? ` · ${status.throughput}` : ""}`
      : "";
    error.textContent = status.error;
    if (details) {
      bar.firstChild.style.setProperty("width", `${(100 * status.step) / details.steps}%`);
      bar.setAttribute("aria-valuenow", Math.round((100 * status.step) / details.steps));
    }
    bar.hidden = !["running", "paused", "reporting"].includes(status.state);
  }
  return { state, progress, error, bar, show };
}

// Buttons that control a run, as its state allows, and links to its files.
function runButtons(name) {
  const element = h("div", { class: "row" });
  const send = (method, params) =>
    request(method, { name, ...params }).catch((problem) => notice(problem.message));
  const control = (action, seconds = 0) => send("control", { action, seconds });
  const resume = (steps) => send("resume", { steps });
  const slow = h("input", {
    type: "checkbox",
    id: "slow",
    onchange: () => control("delay", slow.checked ? 0.5 : 0),
  });
  const total = h("input", {
    type: "number",
    min: 1,
    step: 1,
    "aria-label": "total steps",
    class: "small",
  });

  function show(status, details) {
    const now = status.state;
    const active = ["running", "paused"].includes(now);
    const idle = ["idle", "stopped", "failed", "finished"].includes(now);
    slow.checked = status.delay > 0;
    if (details && !total.value) total.value = 2 * details.steps;
    fill(
      element,
      now === "running" && button("Pause", () => control("pause")),
      now === "paused" && button("Continue", () => control("continue"), { class: "main" }),
      active && button("One step", () => control("step")),
      active && h("label", { class: "row small" }, slow, "slow motion"),
      (active || now === "starting" || now === "queued") && button("Stop", () => control("stop")),
      idle &&
        details && [
          !details.finished && button("Resume", () => resume(0), { class: "main" }),
          h(
            "span",
            { class: "row small" },
            "up to step",
            total,
            button("Train longer", () => resume(Number(total.value)), { class: "small" }),
          ),
        ],
      details && links(details),
    );
  }

  const links = ({ report }) => [
    h("a", { class: "small", href: `/files/${name}.zip`, download: `${name}.zip` }, "download"),
    report &&
      h(
        "a",
        { class: "small", href: `/files/${name}/report.html`, target: "_blank", rel: "noopener" },
        "report",
      ),
  ];
  return { element, show };
}

function settingsOf(name, { command, python, samples, settings, changed }) {
  const images = samples
    .filter((one) => one.endsWith(".png"))
    .slice(-4)
    .map((one) =>
      h("img", { class: "sample", src: `/files/${name}/samples/${one}`, alt: `sample ${one}` }),
    );
  const rows = Object.entries(settings).map(([key, value]) =>
    h(
      "tr",
      h("td", { class: "soft" }, key),
      h("td", { class: changed.includes(key) ? "set" : false }, JSON.stringify(value)),
    ),
  );
  return h(
    "details",
    h("summary", "Settings, command line, Python, samples"),
    h("div", { class: "halves" }, copyable("command line", command), copyable("Python", python)),
    h("div", { class: "row" }, images),
    h("div", { class: "scroll" }, h("table", h("tbody", rows))),
  );
}

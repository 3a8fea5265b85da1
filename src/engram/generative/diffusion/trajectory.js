// One trajectory from noise to samples: its settings, its steps as they arrive, and the canvases that show one of them.

import { h, debounce, loadBitmap } from "../../dom.js";
import { getQuery } from "../../lab.js";
import { channel, decodeArray } from "../../socket.js";
import { drawPoints } from "./points.js";
import { samplingControls } from "./sampling_controls.js";

export const COLUMNS = 4; // of the images of a canvas

// prefix: of its settings in the address. shared, by all trajectories: run, step, about, query, count; real: points of the
// data; seed(); and what is called: changed() with new settings, arrived() with a new step, select(i) when an image is clicked
export function trajectory(shared, { name, prefix, defaults }) {
  const { about, query, changed, arrived } = shared;
  const latest = channel();
  const settings = readSettings(about, prefix, defaults);
  let [current, previous] = [[], []]; // steps of the trajectory that arrives, and of the one before
  const canvases = {
    x: stepCanvas(shared, `noisy samples, ${name}`),
    x_0: stepCanvas(shared, `predicted clean samples, ${name}`),
  };
  const status = h("p", { role: "status" });
  const runSoon = debounce(120, run);
  const controls = samplingControls({ classes: about.classes, name, prefix, settings, set });

  function set(change) {
    Object.assign(settings, change);
    const { sampler, steps, condition, guidance } = settings;
    const hasClasses = about.classes.length > 0;
    query.set({
      [`${prefix}sampler`]: sampler,
      [`${prefix}steps`]: steps,
      [`${prefix}class`]: hasClasses ? condition : "",
      [`${prefix}guidance`]: hasClasses ? guidance : "",
    });
    changed();
    runSoon();
  }

  async function run() {
    if (current.done) previous = current;
    const arriving = [];
    current = arriving;
    let decoded = Promise.resolve();
    const add = async (part) => {
      const step = await decodeStep(part, about.is_image);
      if (current !== arriving) return;
      arriving.push(step);
      arrived();
    };
    try {
      await latest("diffusion", params(shared, settings), (part) => {
        decoded = decoded.then(() => add(part));
      });
      await decoded;
      if (current !== arriving) return;
      arriving.done = true;
      status.textContent = "";
      arrived();
    } catch (error) {
      arriving.failed = true;
      if (current === arriving) status.textContent = error.message;
    }
  }

  const steps = () => (current.done || !previous.length ? current : previous);

  // The previous trajectory is shown until the new one has arrived at the same time, so that the change can be seen.
  function stepAt(t) {
    const all = [current, previous].find((one) => one.length && one.at(-1).t <= t) ?? steps();
    return [all.findLast((one) => one.t >= t) ?? all[0], all];
  }

  function show(t) {
    const [now, all] = stepAt(t);
    if (!now) return null;
    for (const kind of ["x", "x_0"]) {
      if (about.is_image) copyImage(canvases[kind], now[kind]);
      else drawPoints(canvases[kind], shared, { now, kind, steps: all });
    }
    return now;
  }

  const isDone = () => current.done || current.failed;
  return {
    name,
    controls,
    canvases,
    status,
    settings,
    run,
    steps,
    show,
    isDone,
    stop: latest.stop,
  };
}

function readSettings({ classes }, prefix, defaults) {
  const condition = getQuery(`${prefix}class`);
  const isValid =
    classes.length > 0 && (["none", "each"].includes(condition) || Boolean(classes[condition]));
  return {
    sampler: getQuery(`${prefix}sampler`, defaults.sampler),
    steps: Number(getQuery(`${prefix}steps`, defaults.steps)),
    condition: isValid ? condition : defaults.condition,
    guidance: Number(getQuery(`${prefix}guidance`, defaults.guidance)),
  };
}

function params({ run, step, seed, count }, { sampler, steps, condition, guidance }) {
  const isOne = /^\d+$/.test(condition);
  return {
    run,
    step,
    seed: seed(),
    count,
    sampler,
    steps,
    condition: isOne ? "one" : condition,
    label: isOne ? Number(condition) : 0,
    guidance: condition === "none" ? 0 : guidance,
  };
}

async function decodeStep(part, isImage) {
  if (isImage) {
    const [x, x_0] = await Promise.all([part.x, part.x_0].map(loadBitmap));
    return { ...part, x, x_0 };
  }
  return {
    ...part,
    x: decodeArray(part.x),
    x_0: decodeArray(part.x_0),
    score: part.score && decodeArray(part.score),
  };
}

function stepCanvas({ about, count, select }, label) {
  const canvas = h("canvas", {
    class: "pixels",
    width: 1,
    height: 1,
    role: "img",
    "aria-label": label,
    style: {
      width: "100%",
      "touch-action": "auto",
      cursor: about.is_image ? "pointer" : "default",
    },
  });
  if (about.is_image)
    canvas.addEventListener("click", ({ offsetX, offsetY }) => {
      const rows = Math.ceil(count / COLUMNS);
      const row = Math.floor((offsetY / canvas.clientHeight) * rows);
      select(row * COLUMNS + Math.floor((offsetX / canvas.clientWidth) * COLUMNS));
    });
  return canvas;
}

function copyImage(canvas, image) {
  [canvas.width, canvas.height] = [image.width - 1, image.height - 1];
  canvas.getContext("2d").drawImage(image, 0, 0);
}

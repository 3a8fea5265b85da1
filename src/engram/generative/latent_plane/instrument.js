// Latent space: a decoded map of a plane of latents, test samples projected onto it, and interpolation between samples.

import { copyable, fill, h, debounce, loadBitmap } from "../../dom.js";
import { getQuery, queryWriter } from "../../lab.js";
import { request, channel, decodeArray } from "../../socket.js";
import { coordinateSliders } from "./coordinates.js";
import { decodedLatent } from "./decoded.js";
import { interpolationPanel } from "./interpolation.js";
import { latentMap } from "./map.js";
import { changedSettings, decodePlane, latentAt, readSettings } from "./plane.js";
import { planeControls } from "./plane_controls.js";
import { testSamplePanel } from "./test_sample.js";

export function mount(holder, { run, step }) {
  const [mapChannel, query] = [channel(), queryWriter()];
  const settings = readSettings();
  const start = { item: getQuery("item"), changes: getQuery("changes") };
  const state = {
    about: null,
    bands: [], // rows of the map, from top to bottom
    pinned: getQuery("at", "1,0.5").split(",").map(Number), // selected point of the plane
    z: null,
    changes: {}, // coordinates set by sliders, beside the plane
    item: null,
    path: null, // latents of the interpolation
    onPath: getQuery("position") !== "", // whether the selected latent is one of the interpolation
  };

  const status = h("p", { role: "status" });
  const showStatus = (message) => {
    status.textContent = message;
  };
  const captions = h("div");
  const decoded = decodedLatent({ run, step, state, showStatus });
  const controls = planeControls({ settings, query, set, draw: () => map.draw() });
  const map = latentMap({
    state,
    shows: controls.shows,
    preview,
    leave,
    selectPoint,
    selectItem,
  });
  const sliders = coordinateSliders((i, value) =>
    setLatent(state.z, { ...state.changes, [i]: value }),
  );
  const interpolation = interpolationPanel({
    run,
    step,
    query,
    showStatus,
    arrived: (path) => {
      state.path = path;
      if (state.onPath) followPath();
      else map.draw();
    },
    moved: () => {
      state.onPath = true;
      followPath();
    },
  });
  const sample = testSamplePanel({
    interpolateFrom: interpolation.setFirst,
    interpolateTo: interpolation.setLast,
  });
  fill(
    holder,
    controls.bar,
    status,
    h(
      "div",
      { class: "halves" },
      h("div", map.canvas, controls.legend),
      h(
        "div",
        h(
          "div",
          { class: "row", style: { "align-items": "start" } },
          decoded.holder,
          sample.holder,
        ),
        decoded.readout,
        sliders.holder,
      ),
    ),
    interpolation.holder,
    captions,
  );

  // ---------------------------------------------------------------- the plane

  const loadSoon = debounce(100, load);
  async function load() {
    const arriving = [];
    try {
      await mapChannel("latent", { run, step, ...settings }, (part) => {
        if (part.encoded && !state.about) showStatus(`${part.encoded} test samples encoded …`);
        if (part.kind) setPlane(part);
        if (part.side) state.about.side = part.side;
        if (part.rows) {
          arriving.push(part);
          if (arriving.length > state.bands.length || part.top + part.rows === state.about.side)
            setBands(arriving);
        }
      });
      showStatus("");
    } catch (error) {
      showStatus(error.message);
      if (!state.about && settings.plane !== "auto") set({ plane: "auto" }); // the address names a plane that another model had
    }
  }

  function setPlane(part) {
    const before = state.about;
    const about = { ...decodePlane(part), side: before?.side ?? 15 };
    state.about = about;
    if (!before || before.kind !== about.kind) controls.show(about);
    if (!before) {
      sliders.build(about);
      interpolation.build(about);
      fill(captions, describe(about, run));
    }
    if (state.onPath) followPath();
    else if (state.item !== null) setLatent(state.z, {});
    else if (start.item) selectItem(Number(start.item), start.changes);
    else selectPoint(...state.pinned, start.changes);
    start.item = start.changes = "";
    map.draw();
  }

  async function setBands(arriving) {
    const bands = [...arriving];
    if (state.about.is_image)
      await Promise.all(
        bands.map(async (part) => {
          part.bitmap ??= await loadBitmap(part.image);
        }),
      );
    else
      bands.forEach((part) => {
        part.mesh ??= decodeArray(part.points);
      });
    state.bands = bands;
    map.canvas.dataset.rows = bands.reduce((sum, part) => sum + part.rows, 0);
    map.draw();
    if (!state.about.is_image) decoded.drawPoints();
  }

  function set(change) {
    Object.assign(settings, change);
    query.set(changedSettings(settings));
    if (!("extent" in change)) state.bands = [];
    loadSoon();
  }

  // ---------------------------------------------------------------- the selected latent

  function preview(x, y) {
    map.draw([x, y]);
    decoded.decode(latentAt(state.about, x, y));
  }

  function leave() {
    if (!state.z) return;
    map.draw();
    decoded.decode(state.z);
  }

  function selectPoint(x, y, changes = "") {
    Object.assign(state, { pinned: [x, y], item: null, onPath: false });
    sample.clear();
    query.set({ position: "", at: state.pinned.map((one) => one.toFixed(2)).join(","), item: "" });
    setLatent(latentAt(state.about, x, y), parseChanges(changes));
  }

  async function selectItem(number, changes = "") {
    try {
      const found = await request("latent.item", { run, step, item: number });
      Object.assign(state, { item: number, onPath: false });
      query.set({ item: number, position: "" });
      setLatent(decodeArray(found.z).values, parseChanges(changes));
      sample.show(number, found);
    } catch (error) {
      showStatus(error.message);
    }
  }

  function followPath() {
    if (!state.path) return;
    state.item = null;
    sample.clear();
    setLatent(state.path[Math.min(state.path.length - 1, interpolation.position())], {});
  }

  function setLatent(latent, changes) {
    const z = [...latent];
    for (const [i, value] of Object.entries(changes)) if (i < z.length) z[i] = value;
    Object.assign(state, { z, changes });
    query.set({ changes: formatChanges(changes) });
    sliders.set(z);
    map.draw();
    decoded.decode(z);
  }

  showStatus("Loading the model …");
  load();
  return () => {
    mapChannel.stop();
    interpolation.stop();
    query.stop();
    decoded.stop();
  };
}

// Changed coordinates in the address: coordinate:value,…
const formatChanges = (changes) =>
  Object.entries(changes)
    .map(([i, value]) => `${i}:${value}`)
    .join(",");
const parseChanges = (text) =>
  Object.fromEntries(
    text
      .split(",")
      .filter(Boolean)
      .map((one) => one.split(":").map(Number)),
  );

function describe({ is_image: isImage, has_encoder: hasEncoder, latent_dim: latentDim }, run) {
  const caption = isImage
    ? "Each image of the map is the decoded latent at its center; move over the map to decode the latents in between."
    : "Each point of the map is a latent; the mesh beside it shows the decoded points, among test points in gray.";
  const samples = hasEncoder
    ? " Colored dots are the latents of test samples, projected onto the plane: click one."
    : " The circle has the usual norm of a sample of the prior.";
  const zeros = Array(Math.min(latentDim, 3)).fill("0.0").join(", ");
  const python = `model = engram.load("runs/${run}")\nx = model.decode(torch.tensor([[${zeros}${latentDim > 3 ? ", …" : ""}]]))`;
  return [
    h("p", { class: "soft small" }, caption, samples),
    isImage && copyable("command line", `engram sample runs/${run} --show plane --count 225`),
    copyable("Python", python),
  ];
}

// Latent plane: a map of what codes stand for, a walk upon it, test items where their codes lie, and ways between them.

import { COLOURS } from "../charts.js";
import { button, choice, copyable, fill, h, settled, slider } from "../dom.js";
import { kept, remembering } from "../lab.js";
import { ask, channel, unpacked } from "../link.js";

const [WIDE, NEAR, SLIDERS] = [600, 12, 8];
const KINDS = { coordinates: "two numbers of the code", principal: "where codes differ most", random: "two random directions" };

export function mount(holder, { run, step }) {
  const [mapping, walking, memory] = [channel(), channel(), remembering()];
  const given = { plane: kept("plane", "best"), across: Number(kept("across", "0")), up: Number(kept("up", "1")), seed: Number(kept("seed", "0")), reach: Number(kept("reach", "2.5")) };
  const start = { item: kept("item"), moved: kept("moved") };
  let about = null;
  let bands = [];  // what the map is made of, from above to below
  let pinned = kept("at", "1,0.5").split(",").map(Number);
  let z = null;
  let moved = {};  // numbers of the code that a slider has set, beside the plane
  let item = null;
  let way = null;
  let riding = kept("way") !== "";  // whether one is on the way from one thing to another

  const map = h("canvas", { class: "pixels", tabindex: 0, width: WIDE, height: WIDE, role: "application", "aria-label": "map of codes: arrow keys walk", style: { width: "100%", display: "block" } });
  const ticks = Object.fromEntries(["pictures", "dots"].map((name) => [name, h("input", { type: "checkbox", id: `show-${name}`, checked: kept(`hide_${name}`) !== "1", onchange: () => { memory.keep({ [`hide_${name}`]: ticks[name].checked ? "" : "1" }); draw(); } })]));
  const large = h("div", { data: { large: "" }, style: { "max-width": "20rem" } });
  const [said, where, bar, legend, dials, picked, between, words] = [h("p", { role: "status" }), h("p", { class: "soft small", data: { where: "" } }), h("div", { class: "row" }), h("div", { class: "row small" }), h("div"), h("div"), h("div"), h("div")];
  fill(holder, bar, said, h("div", { class: "halves" }, h("div", map, legend), h("div", h("div", { class: "row", style: { "align-items": "start" } }, large, picked), where, dials)), between, words);

  // ---------------------------------------------------------------- the plane

  const soon = settled(100, load);
  async function load() {
    let coming = [];
    try {
      await mapping("codes", { run, step, ...given }, (part) => {
        if (part.encoded && !about) said.textContent = `${part.encoded} test items have their codes …`;
        if (part.kind) took(part);
        if (part.side) about.side = part.side;
        if (part.rows) { coming.push(part); if (coming.length > bands.length || part.top + part.rows === about.side) received(coming); }
      });
      said.textContent = "";
    } catch (error) {
      said.textContent = error.message;
      if (!about && given.plane !== "best") set({ plane: "best" });  // a plane of another model, by a link or by choosing this one
    }
  }

  function took(part) {
    const before = about;
    about = { ...part, side: before?.side ?? 15 };
    for (const name of ["o", "a", "b", "mean", "spread"]) about[name] = unpacked(part[name]).values;
    for (const name of ["dots", "real"]) about[name] = part[name] && unpacked(part[name]);
    if (!before || before.kind !== about.kind) offer();
    if (!before) { dial(); interpolate(); explain(); }
    if (riding) ride();
    else if (item !== null) go(z, {});
    else if (start.item) choose(Number(start.item), start.moved);
    else walk(...pinned, start.moved);
    start.item = start.moved = "";
    draw();
  }

  async function received(coming) {
    const mine = [...coming];
    if (about.pictures) await Promise.all(mine.map(async (part) => { part.picture ??= await loaded(part.image); }));
    else mine.forEach((part) => { part.mesh ??= unpacked(part.points); });
    bands = mine;
    map.dataset.rows = bands.reduce((sum, part) => sum + part.rows, 0);
    draw();
    if (!about.pictures) pointed();
  }

  function set(change) {
    Object.assign(given, change);
    const { plane, across, up, seed, reach } = given;
    memory.keep({ plane: plane === "best" ? "" : plane, across: across || "", up: up === 1 ? "" : up, seed: seed || "", reach: reach === 2.5 ? "" : reach });
    bands = "reach" in change ? bands : [];
    soon();
  }

  function offer() {
    const kinds = Object.entries(KINDS).filter(([kind]) => kind === about.kind || (about.code > 1 && (kind !== "principal" || about.encodes)));
    const numbers = order().map((i) => [String(i), `number ${i + 1}`]);
    const number = (label, name) => choice({ label, name, options: numbers, value: String(given[name]), change: (value) => set({ [name]: Number(value) }) });
    fill(bar,
      choice({ label: "plane", name: "plane", options: kinds, value: about.kind, change: (value) => { const [across, up] = order(); set(value === "coordinates" ? { plane: value, across, up } : { plane: value }); } }),
      about.kind === "coordinates" && about.code > 2 && [number("across", "across"), number("up", "up")],
      about.kind === "random" && button("another plane", () => set({ seed: given.seed + 1 })),
      h("div", { style: { "min-width": "11rem" } }, slider({ label: "reach of the map", name: "reach", low: 0.5, high: 6, step: 0.25, value: given.reach, show: (x) => x.toFixed(2), change: (x) => set({ reach: x }) })),
      about.pictures && h("label", ticks.pictures, " pictures"), about.encodes && h("label", ticks.dots, " test items"));
    fill(legend, about.classes.slice(0, 20).map((one, k) => h("span", h("span", { "aria-hidden": "true", style: { color: COLOURS[k % COLOURS.length] } }, "● "), one)));
  }

  // Numbers of the code, those first that differ most between things.
  const order = () => Array.from(about.spread, (_, i) => i).sort((i, j) => about.spread[j] - about.spread[i]);

  // ---------------------------------------------------------------- where one is

  const on = (x, y) => Array.from(about.o, (o, i) => o + x * about.a[i] + y * about.b[i]);

  function placeOf(code) {
    const along = (axis) => {
      const [dot, square] = axis.reduce(([d, s], one, i) => [d + (code[i] - about.o[i]) * one, s + one * one], [0, 0]);
      return square > 1e-12 ? dot / square : 0;
    };
    return [along(about.a), along(about.b)];
  }

  function walk(x, y, text = "") {
    moved = Object.fromEntries(text.split(",").filter(Boolean).map((one) => one.split(":").map(Number)));
    pinned = [x, y];
    item = null;
    riding = false;
    fill(picked);
    memory.keep({ way: "", at: pinned.map((one) => one.toFixed(2)).join(","), item: "" });
    go(on(x, y), moved);
  }

  function go(code, changes) {
    z = [...code];
    moved = changes;
    for (const [i, value] of Object.entries(moved)) if (i < z.length) z[i] = value;
    memory.keep({ moved: Object.entries(moved).map(([i, value]) => `${i}:${value}`).join(",") });
    dials.querySelectorAll("[data-number]").forEach((one) => one.dial.set(z[Number(one.dataset.number)]));
    draw();
    see(z);
  }

  // What a code stands for: one ask at a time, and after it the newest; a pointer moves faster than answers come.
  let [busy, next] = [false, null];
  async function see(code) {
    next = code;
    if (busy) return;
    busy = true;
    while (next) {
      const now = next;
      next = null;
      try {
        put(await ask("codes.decode", { run, step, z: Array.from(now, (one) => Math.max(-1e4, Math.min(1e4, one))) }), now);
        said.textContent = "";
      } catch (error) {
        said.textContent = error.message;
      }
    }
    busy = false;
  }

  let point = null;
  function put(answer, code) {
    if (answer.image) fill(large, h("img", { class: "sample", src: answer.image, alt: "what the code stands for", style: { width: "20rem" } }));
    else { point = unpacked(answer.points).values; pointed(); }
    const few = code.slice(0, 6).map((one) => one.toFixed(2)).join(", ");
    where.textContent = `z = (${few}${code.length > 6 ? `, … ${code.length} numbers` : ""})` + (answer.real === undefined ? "" : ` · the judge takes it for real with ${Math.round(100 * answer.real)} %`);
  }

  // ---------------------------------------------------------------- the map

  const span = () => about.reach * about.side / (about.side - 1);  // pictures stand at places, so half of one goes beyond
  const toMap = (x, y) => [(x / span() + 1) / 2 * map.width, (1 - y / span()) / 2 * map.height];
  const fromMap = ({ offsetX, offsetY }) => [(2 * offsetX / map.clientWidth - 1) * span(), (1 - 2 * offsetY / map.clientHeight) * span()];

  function draw(preview = null) {
    if (!about) return;
    if (about.pictures) map.height = Math.round(WIDE * about.shape[1] / about.shape[2]);
    const pen = map.getContext("2d");
    pen.clearRect(0, 0, map.width, map.height);
    pen.imageSmoothingEnabled = about.pictures && 2 * about.side * about.shape[2] > map.width;  // pixels stay sharp where they are large
    if (about.pictures && ticks.pictures.checked) drawBands(pen);
    else lattice(pen);
    if (about.kind === "random") ring(pen, toMap(0, 0), map.width / span(), "rgba(128,128,128,0.9)", 1);
    if (about.dots && ticks.dots.checked) drawDots(pen);
    if (way && about.encodes) drawWay(pen);
    const place = toMap(...(preview ?? (z ? placeOf(z) : pinned)));
    ring(pen, place, 9, "#000", 5);
    ring(pen, place, 9, "#fff", 2.5);
  }

  function drawBands(pen) {
    const row = map.height / about.side;
    for (const { picture, top, rows } of bands) if (picture) pen.drawImage(picture, 0, top * row, map.width, rows * row);
    if (!about.dots || !ticks.dots.checked) return;
    pen.fillStyle = "rgba(0,0,0,0.3)";  // so that dots stand out
    pen.fillRect(0, 0, map.width, map.height);
  }

  function lattice(pen) {
    pen.strokeStyle = "rgba(128,128,128,0.3)";
    pen.lineWidth = 1;
    for (let i = 0; i < about.side; i += 1) {
      const at = -about.reach + 2 * about.reach * i / (about.side - 1);
      stroke(pen, [toMap(at, -span()), toMap(at, span())]);
      stroke(pen, [toMap(-span(), at), toMap(span(), at)]);
    }
  }

  function drawDots(pen) {
    for (let i = 0; i < about.dots.shape[0]; i += 1) {
      pen.beginPath();
      pen.arc(...toMap(about.dots.at(i, 0), about.dots.at(i, 1)), i === item ? 6 : 3.2, 0, 7);
      pen.fillStyle = COLOURS[(about.labels[i] ?? 0) % COLOURS.length];
      pen.fill();
      pen.lineWidth = 0.7;
      pen.strokeStyle = "#fff";
      pen.stroke();
    }
  }

  function drawWay(pen) {
    const places = way.codes.map((code) => toMap(...placeOf(code)));
    for (const [colour, width] of [["#000", 4.5], ["#fff", 2]]) { pen.strokeStyle = colour; pen.lineWidth = width; stroke(pen, places); }
  }

  function over(event) {
    if (!about) return;
    const place = fromMap(event);
    draw(place);
    see(on(...place));
  }

  map.addEventListener("pointermove", (event) => { if (event.buttons) walk(...fromMap(event)); else if (event.pointerType === "mouse") over(event); });
  map.addEventListener("pointerleave", () => { if (z) { draw(); see(z); } });
  map.addEventListener("click", (event) => {
    if (!about) return;
    const near = nearest(event);
    if (near === null) walk(...fromMap(event));
    else choose(near);
  });
  map.addEventListener("keydown", (event) => {
    const turn = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowDown: [0, -1] }[event.key];
    if (!turn || !about) return;
    event.preventDefault();
    const [x, y] = placeOf(z);
    const far = about.reach / (event.shiftKey ? 5 : 25);
    walk(...[x + turn[0] * far, y + turn[1] * far].map((one) => Math.max(-span(), Math.min(span(), one))));
  });

  function nearest(event) {
    if (!about.dots || !ticks.dots.checked) return null;
    const scale = map.clientWidth / map.width;
    let [best, least] = [null, NEAR];
    for (let i = 0; i < about.dots.shape[0]; i += 1) {
      const [x, y] = toMap(about.dots.at(i, 0), about.dots.at(i, 1)).map((one) => one * scale);
      const far = Math.hypot(x - event.offsetX, y - event.offsetY);
      if (far < least) [best, least] = [i, far];
    }
    return best;
  }

  // ---------------------------------------------------------------- points: the plane of codes, bent into that of things

  function pointed() {
    const { real } = about;
    const canvas = large.querySelector("canvas") ?? h("canvas", { class: "pixels", width: 640, height: 640, role: "img", "aria-label": "where the codes of the map lead", style: { width: "20rem", cursor: "default", "touch-action": "auto" } });
    if (!canvas.isConnected) fill(large, canvas);
    const second = Math.min(1, real.shape[1] - 1);
    const extent = 1.25 * real.values.reduce((most, one) => Math.max(most, Math.abs(one)), 1e-6);
    const at = (x, y) => [(x / extent + 1) * 320, (1 - y / extent) * 320];
    const pen = canvas.getContext("2d");
    pen.clearRect(0, 0, 640, 640);
    pen.fillStyle = "rgba(128,128,128,0.6)";
    for (let i = 0; i < real.shape[0]; i += 1) { const [x, y] = at(real.at(i, 0), real.at(i, second)); pen.fillRect(x - 2, y - 2, 4, 4); }
    const rows = bands.flatMap(({ mesh, rows: count }) => (mesh ? Array.from({ length: count }, (_, r) => Array.from({ length: about.side }, (_, c) => at(mesh.at(r * about.side + c, 0), mesh.at(r * about.side + c, second)))) : []));
    pen.strokeStyle = COLOURS[0];
    pen.lineWidth = 1;
    rows.forEach((row) => stroke(pen, row));
    if (about.code > 1 && rows.length) rows[0].forEach((_, c) => stroke(pen, rows.map((row) => row[c])));
    if (point) { pen.fillStyle = COLOURS[1]; pen.beginPath(); pen.arc(...at(point[0], point[second]), 9, 0, 7); pen.fill(); }
  }

  // ---------------------------------------------------------------- one thing

  async function choose(number, text = "") {
    try {
      const found = await ask("codes.item", { run, step, item: number });
      item = number;
      riding = false;
      memory.keep({ item: number, way: "" });
      go(unpacked(found.z).values, Object.fromEntries(text.split(",").filter(Boolean).map((one) => one.split(":").map(Number))));
      const frame = (title, answer) => h("figure", { style: { margin: "0" } }, h("figcaption", { class: "small" }, title), answer.image
        ? h("img", { class: "sample", src: answer.image, alt: title, style: { width: "7rem" } })
        : h("code", Array.from(unpacked(answer.points).values.slice(0, 4), (one) => one.toFixed(2)).join(", ")));
      fill(picked, h("p", { class: "small" }, h("b", `test item ${number}`), found.class && ` · ${found.class}`),
        found.itself && frame("itself", found.itself), frame("from its code", found.again),
        found.error !== undefined && h("p", { class: "soft small" }, `squared error ${found.error.toPrecision(3)}`),
        h("div", { class: "row" }, button("way from here", () => ends.first.set(number), { class: "small" }), button("way to here", () => ends.last.set(number), { class: "small" })));
    } catch (error) {
      said.textContent = error.message;
    }
  }

  // ---------------------------------------------------------------- numbers of the code

  function dial() {
    const shown = about.encodes && about.code > SLIDERS ? order().slice(0, SLIDERS) : Array.from({ length: Math.min(SLIDERS, about.code) }, (_, i) => i);
    fill(dials, h("details", { open: true }, h("summary", about.encodes && about.code > SLIDERS ? `The ${SLIDERS} numbers of the code that differ most` : "Numbers of the code"),
      h("div", { class: "fields" }, shown.map((i) => {
        const far = 3 * Math.max(about.spread[i], 1e-2);
        const [low, high] = [about.mean[i] - far, about.mean[i] + far];
        const one = slider({ label: `number ${i + 1}`, name: `z${i}`, low, high, step: (high - low) / 200, value: about.mean[i], show: (x) => x.toFixed(2), change: (x) => go(z, { ...moved, [i]: Number(x.toFixed(4)) }) });
        return Object.assign(h("div", { data: { number: i } }, one), { dial: one });
      }))));
  }

  // ---------------------------------------------------------------- the way from one thing to another

  const ends = {};
  function interpolate() {
    const labels = about.labels;
    const different = Math.max(1, labels.findIndex((one) => one !== labels[0]));
    const most = about.encodes ? about.items - 1 : 999999;
    for (const [name, label, usual] of [["first", "from", 0], ["last", "to", different]]) {
      const input = h("input", { type: "number", name, min: 0, max: most, value: kept(name, usual), style: { width: "6.5rem" }, oninput: settled(150, () => { memory.keep({ [name]: input.value }); travel(); }) });
      ends[name] = { input, label: h("label", `${label} `, input), set: (value) => { input.value = value; memory.keep({ [name]: value }); travel(); } };
    }
    ends.along = choice({ label: "along", name: "along", options: [["line", "a straight line"], ["arc", "an arc"]], value: kept("along", about.encodes ? "line" : "arc"), change: (value) => { memory.keep({ along: value }); travel(); } });
    const any = button("two others", () => { for (const one of Object.values(ends)) one.set(Math.floor(Math.random() * Math.min(most, about.encodes ? about.items : 1e6))); }, { class: "small" });
    ends.place = slider({ label: "on the way", name: "way", low: 0, high: 20, step: 1, value: Number(kept("way", "0")), show: (i) => `${Math.round(100 * i / (Number(ends.place?.input.max) || 20))} %`, change: (i) => { memory.keep({ way: i, item: "" }); riding = true; ride(); } });
    ends.strip = h("div");
    fill(between, h("h2", "From one to another"), h("div", { class: "row" }, ends.first.label, ends.last.label, ends.along, any),
      h("p", { class: "soft small" }, about.encodes ? "Codes on the way between those of two test items: does every step look like something?" : "Codes on the way between two that were drawn: does every step look like something?"),
      ends.place, ends.strip);
    travel();
  }

  function ride() {
    if (!way) return;
    item = null;
    fill(picked);
    go(way.codes[Math.min(way.codes.length - 1, Number(ends.place.input.value))], {});
  }

  async function travel() {
    try {
      await walking("codes.between", { run, step, first: Math.trunc(Number(ends.first.input.value)), last: Math.trunc(Number(ends.last.input.value)), along: ends.along.select.value, count: 21 }, (part) => {
        if (part.z) {
          const { shape, values } = unpacked(part.z);
          way = { codes: Array.from({ length: shape[0] }, (_, i) => values.slice(i * shape[1], (i + 1) * shape[1])) };
          ends.place.input.max = shape[0] - 1;
          if (riding) ride();
          else draw();
        }
        if (part.image) fill(ends.strip, h("img", { class: "sample", src: part.image, alt: "pictures on the way", style: { width: "100%" } }));
      });
      said.textContent = "";
    } catch (error) {
      said.textContent = error.message;
    }
  }

  function explain() {
    const caption = about.pictures ? "Each picture of the map is what the code at its place stands for; move over it to see the codes in between." : "Each place of the map is a code; beside it, the net shows where the codes of the map lead, among real points in grey.";
    const dots = about.encodes ? " Coloured dots are test items where their codes lie, seen from above the plane: click one." : " On the circle codes are as long as drawn ones usually are.";
    const python = `model = engram.load("runs/${run}")\nx = model.decode(torch.tensor([[${Array.from({ length: Math.min(about.code, 3) }, () => "0.0").join(", ")}${about.code > 3 ? ", …" : ""}]]))`;
    fill(words, h("p", { class: "soft small" }, caption, dots), about.pictures && copyable("in a terminal", `engram sample runs/${run} --show plane --count 225`), copyable("in Python", python));
  }

  said.textContent = "The model is opened …";
  load();
  return () => { mapping.stop(); walking.stop(); memory.stop(); next = null; };
}

function stroke(pen, places) {
  pen.beginPath();
  places.forEach((place, i) => pen[i ? "lineTo" : "moveTo"](...place));
  pen.stroke();
}

function ring(pen, place, radius, colour, width) {
  pen.beginPath();
  pen.arc(...place, radius, 0, 7);
  pen.strokeStyle = colour;
  pen.lineWidth = width;
  pen.stroke();
}

async function loaded(source) {
  const image = new Image();
  image.src = source;
  await image.decode();
  return image;
}

// Pictures that somebody brings: drawn, or decoded from a file here in the browser, on their way to brought.py.
//
//   const values = await decoded(file, [3, 32, 32], { crops: true });   // Float32Array from 0 to 1, channels × height × width
//   ask("clip", { pixels: bytes(values) });
//   holder.append(dropPlace({ label: "a picture of your own", shape, crops, taken: (values) => … }))
//   keepPicture("drawn", values);  keptPicture("drawn", length)          // over a reload: in the address, or if large beside it

import { button, fresh, h } from "./dom.js";
import { keep, kept } from "./lab.js";

const LONGEST_ADDRESS = 6000;
const BESIDE = "beside";

export function bytes(values) {
  let text = "";
  for (const value of values) text += String.fromCharCode(Math.round(255 * Math.min(1, Math.max(0, value))));
  return btoa(text);
}

const values = (text) => Float32Array.from(atob(text), (one) => one.charCodeAt(0) / 255);

// Stretched to the size, or the middle of it cut out, whichever the model expects; on white where it is transparent.
export async function decoded(file, [channels, height, width], { crops = false } = {}) {
  let picture;
  try {
    picture = await createImageBitmap(file);
  } catch {
    throw new Error(`«${file.name ?? "that"}» cannot be read as a picture.`);
  }
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  const part = crops ? Math.min(picture.width / width, picture.height / height) : 0;
  const [wide, high] = crops ? [part * width, part * height] : [picture.width, picture.height];
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(picture, (picture.width - wide) / 2, (picture.height - high) / 2, wide, high, 0, 0, width, height);
  picture.close();
  return channelled(context.getImageData(0, 0, width, height).data, channels);
}

// Red, green, blue and opacity of each pixel as channels, one after the other; a single one is brightness.
function channelled(data, channels) {
  const size = data.length / 4;
  const made = new Float32Array(channels * size);
  for (let i = 0; i < size; i += 1) {
    const colours = [data[4 * i] / 255, data[4 * i + 1] / 255, data[4 * i + 2] / 255];
    if (channels === 1) made[i] = 0.299 * colours[0] + 0.587 * colours[1] + 0.114 * colours[2];
    else for (let c = 0; c < channels; c += 1) made[c * size + i] = colours[c];
  }
  return made;
}

// A place to drop a file on, or to choose one from.
export function dropPlace({ label, shape, crops = false, taken }) {
  const id = fresh("file");
  const said = h("p", { class: "soft small", role: "status", style: { margin: "0" } });
  const input = h("input", { id, type: "file", accept: "image/*", "aria-label": label, onchange: () => input.files[0] && take(input.files[0]), hidden: true });
  const place = h("div", { class: "drop", style: { padding: ".7rem" } }, button(`${label} …`, () => input.click(), { class: "small" }), h("span", { class: "soft small" }, " or drop a file here"), input, said);
  const over = (whether) => (event) => { event.preventDefault(); place.classList.toggle("over", whether); };
  place.addEventListener("dragover", over(true));
  place.addEventListener("dragleave", over(false));
  place.addEventListener("drop", (event) => { over(false)(event); if (event.dataTransfer.files[0]) take(event.dataTransfer.files[0]); });

  async function take(file) {
    try {
      taken(await decoded(file, shape, { crops }));
      said.textContent = file.name;
    } catch (error) {
      said.textContent = error.message;
    }
  }
  return place;
}

export function keepPicture(name, numbers) {
  const text = numbers ? bytes(numbers) : "";
  const large = text.length > LONGEST_ADDRESS;
  if (large) sessionStorage.setItem(`engram-${name}`, text);
  keep({ [name]: large ? BESIDE : text });
}

// The picture that was kept, if it is of this many numbers: another model may see another size.
export function keptPicture(name, length) {
  const text = kept(name);
  try {
    const made = values(text === BESIDE ? sessionStorage.getItem(`engram-${name}`) ?? "" : text);
    return made.length === length ? made : null;
  } catch {
    return null;  // an address that somebody has cut
  }
}

// A red disc on white: something to begin with where there are no pictures.
export function disc([channels, height, width]) {
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#d22";
  context.beginPath();
  context.arc(width / 2, height / 2, Math.min(width, height) / 3, 0, 7);
  context.fill();
  return channelled(context.getImageData(0, 0, width, height).data, channels);
}

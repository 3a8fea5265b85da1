// User images: drawn, or decoded from a file in the browser, and sent to the endpoints (plots/image_input.py).
//
//   const values = await decodeImage(file, [3, 32, 32], { crops: true });   // Float32Array from 0 to 1, channels × height × width
//   request("clip", { pixels: encodePixels(values) });
//   holder.append(fileDrop({ label: "image file", shape, crops, onImage: (values) => … }))
//   saveImage("image", values);  loadImage("image", length)                  // in the address, or if large in the session storage

import { button, uniqueId, h } from "./dom.js";
import { setQuery, getQuery } from "./lab.js";

const MAX_QUERY = 6000; // characters of an image in the address
const STORED = "stored";

export function encodePixels(values) {
  let text = "";
  for (const value of values)
    text += String.fromCharCode(Math.round(255 * Math.min(1, Math.max(0, value))));
  return btoa(text);
}

const decodePixels = (text) => Float32Array.from(atob(text), (one) => one.charCodeAt(0) / 255);

// Decode and resize an image file, with `crops` after a center crop; transparent pixels become white.
export async function decodeImage(file, [channels, height, width], { crops = false } = {}) {
  let bitmap;
  try {
    bitmap = await createImageBitmap(file);
  } catch {
    throw new Error(`"${file.name ?? "file"}" cannot be read as an image.`);
  }
  const canvas = new OffscreenCanvas(width, height);
  const context = canvas.getContext("2d");
  const scale = Math.min(bitmap.width / width, bitmap.height / height);
  const [cropWidth, cropHeight] = crops
    ? [scale * width, scale * height]
    : [bitmap.width, bitmap.height];
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.imageSmoothingQuality = "high";
  context.drawImage(
    bitmap,
    (bitmap.width - cropWidth) / 2,
    (bitmap.height - cropHeight) / 2,
    cropWidth,
    cropHeight,
    0,
    0,
    width,
    height,
  );
  bitmap.close();
  return toChannels(context.getImageData(0, 0, width, height).data, channels);
}

// RGBA pixels as channels, one after the other; a single channel is the luminance.
function toChannels(data, channels) {
  const size = data.length / 4;
  const values = new Float32Array(channels * size);
  for (let i = 0; i < size; i += 1) {
    const colors = [data[4 * i] / 255, data[4 * i + 1] / 255, data[4 * i + 2] / 255];
    if (channels === 1) values[i] = 0.299 * colors[0] + 0.587 * colors[1] + 0.114 * colors[2];
    else for (let c = 0; c < channels; c += 1) values[c * size + i] = colors[c];
  }
  return values;
}

// An area to drop an image file on, with a button to choose one.
export function fileDrop({ label, shape, crops = false, onImage }) {
  const id = uniqueId("file");
  const status = h("p", { class: "soft small", role: "status", style: { margin: "0" } });
  const input = h("input", {
    id,
    type: "file",
    accept: "image/*",
    "aria-label": label,
    onchange: () => input.files[0] && load(input.files[0]),
    hidden: true,
  });
  const area = h(
    "div",
    { class: "drop", style: { padding: ".7rem" } },
    button(`${label} …`, () => input.click(), { class: "small" }),
    h("span", { class: "soft small" }, " or drop a file here"),
    input,
    status,
  );
  const highlight = (on) => (event) => {
    event.preventDefault();
    area.classList.toggle("over", on);
  };
  area.addEventListener("dragover", highlight(true));
  area.addEventListener("dragleave", highlight(false));
  area.addEventListener("drop", (event) => {
    highlight(false)(event);
    if (event.dataTransfer.files[0]) load(event.dataTransfer.files[0]);
  });

  async function load(file) {
    try {
      onImage(await decodeImage(file, shape, { crops }));
      status.textContent = file.name;
    } catch (error) {
      status.textContent = error.message;
    }
  }
  return area;
}

export function saveImage(name, values) {
  const text = values ? encodePixels(values) : "";
  const large = text.length > MAX_QUERY;
  if (large) sessionStorage.setItem(`engram-${name}`, text);
  setQuery({ [name]: large ? STORED : text });
}

// The saved image if it has this many values: models differ in their image sizes.
export function loadImage(name, length) {
  const text = getQuery(name);
  try {
    const values = decodePixels(
      text === STORED ? (sessionStorage.getItem(`engram-${name}`) ?? "") : text,
    );
    return values.length === length ? values : null;
  } catch {
    return null; // an address that was cut off
  }
}

// A red disc on white, the initial image where there are no test images.
export function discImage([channels, height, width]) {
  const context = new OffscreenCanvas(width, height).getContext("2d");
  context.fillStyle = "#fff";
  context.fillRect(0, 0, width, height);
  context.fillStyle = "#d22";
  context.beginPath();
  context.arc(width / 2, height / 2, Math.min(width, height) / 3, 0, 7);
  context.fill();
  return toChannels(context.getImageData(0, 0, width, height).data, channels);
}

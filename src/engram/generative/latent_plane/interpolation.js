// Interpolation between two samples: linear or spherical, as a strip of decoded latents.

import { button, dropdown, fill, h, debounce, slider } from "../../dom.js";
import { getQuery } from "../../lab.js";
import { channel, decodeArray } from "../../socket.js";

const [COUNT, MAX_SEED] = [21, 999999]; // without an encoder, samples of the prior have seeds

// arrived(path): latents of the interpolation; moved(): the position is changed; showStatus(message) says what failed
export function interpolationPanel({ run, step, query, arrived, moved, showStatus }) {
  const holder = h("div");
  const strip = h("div");
  const latest = channel();
  let first, last, method, position;

  function build(about) {
    const { labels, has_encoder: hasEncoder, items } = about;
    const different = labels.findIndex((one) => one !== labels[0]);
    const most = hasEncoder ? items - 1 : MAX_SEED;
    const change = (changes) => {
      query.set(changes);
      interpolate();
    };
    first = endInput("first", 0, most, change);
    last = endInput("last", Math.max(1, different), most, change);
    method = methodDropdown(hasEncoder, change);
    position = positionSlider(() => {
      query.set({ position: position.input.value, item: "" });
      moved();
    });
    const random = button(
      "two random samples",
      () => {
        const count = Math.min(most, hasEncoder ? items : 1e6);
        for (const one of [first, last]) setEnd(one, Math.floor(Math.random() * count));
      },
      { class: "small" },
    );
    fill(
      holder,
      h("h2", "Interpolation"),
      h(
        "div",
        { class: "row" },
        h("label", "from ", first),
        h("label", "to ", last),
        method,
        random,
      ),
      h(
        "p",
        { class: "soft small" },
        hasEncoder
          ? "Decoded latents between those of two test samples."
          : "Decoded latents between two samples of the prior.",
      ),
      position,
      strip,
    );
    interpolate();
  }

  function setEnd(input, value) {
    input.value = value;
    query.set({ [input.name]: value });
    interpolate();
  }

  function show({ z, image }) {
    if (z) {
      const { shape, values } = decodeArray(z);
      position.input.max = shape[0] - 1;
      arrived(
        Array.from({ length: shape[0] }, (_, i) => values.slice(i * shape[1], (i + 1) * shape[1])),
      );
    }
    if (image)
      fill(
        strip,
        h("img", { class: "sample", src: image, alt: "interpolation", style: { width: "100%" } }),
      );
  }

  async function interpolate() {
    const params = {
      run,
      step,
      first: Math.trunc(Number(first.value)),
      last: Math.trunc(Number(last.value)),
      method: method.select.value,
      count: COUNT,
    };
    try {
      await latest("latent.interpolate", params, show);
      showStatus("");
    } catch (error) {
      showStatus(error.message);
    }
  }

  return {
    holder,
    build,
    setFirst: (number) => setEnd(first, number),
    setLast: (number) => setEnd(last, number),
    position: () => Number(position.input.value),
    stop: latest.stop,
  };
}

function endInput(name, initial, most, change) {
  const input = h("input", {
    type: "number",
    name,
    min: 0,
    max: most,
    value: getQuery(name, initial),
    style: { width: "6.5rem" },
    oninput: debounce(150, () => change({ [name]: input.value })),
  });
  return input;
}

const methodDropdown = (hasEncoder, change) =>
  dropdown({
    label: "interpolation",
    name: "method",
    options: [
      ["linear", "linear"],
      ["slerp", "spherical (slerp)"],
    ],
    value: getQuery("method", hasEncoder ? "linear" : "slerp"),
    change: (method) => change({ method }),
  });

function positionSlider(change) {
  const last = () => Number(one?.input.max ?? COUNT - 1); // large images are fewer
  let one = null;
  one = slider({
    label: "position",
    name: "position",
    low: 0,
    high: COUNT - 1,
    step: 1,
    value: Number(getQuery("position", "0")),
    show: (i) => `${Math.round((100 * i) / last())} %`,
    change,
  });
  return one;
}

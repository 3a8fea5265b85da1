// Uploads of user data, and the table of data sets.

import { button, fill, h, notice } from "../dom.js";
import { request } from "../socket.js";

const KINDS = {
  text: "text",
  images: "images",
  points: "points",
  table: "table",
  pairs: "text pairs",
  captions: "images with captions",
};

export async function show(holder) {
  const uploads = h("tbody");
  const file = h("input", {
    type: "file",
    id: "file",
    accept: ".txt,.csv,.tsv,.npz,.npy,.zip",
    onchange: () => upload(file.files),
  });
  const drop = h(
    "label",
    {
      class: "drop",
      for: "file",
      ondragover: (event) => {
        event.preventDefault();
        drop.classList.add("over");
      },
      ondragleave: () => drop.classList.remove("over"),
      ondrop: (event) => {
        event.preventDefault();
        drop.classList.remove("over");
        upload(event.dataTransfer.files);
      },
    },
    h("b", "Drop a file here, or choose one: "),
    file,
    h(
      "p",
      { class: "soft" },
      "Text (.txt), tables (.csv, .npz, .npy), text pairs (.tsv), or a .zip of texts or of images in one folder per class; at most 200 MB. Files stay on this machine.",
    ),
  );
  const status = h("p", { role: "status" });
  const sets = h("tbody");
  fill(
    holder,
    h("h1", "Data"),
    h("h2", "Upload"),
    drop,
    status,
    h("div", { class: "scroll" }, h("table", uploads)),
    h("h2", "Data sets"),
    h(
      "div",
      { class: "scroll" },
      h(
        "table",
        h(
          "thead",
          h(
            "tr",
            ["name", "title", "kind", "items", "license", "on this machine"].map((one) =>
              h("th", one),
            ),
          ),
        ),
        sets,
      ),
    ),
  );
  await refresh();

  async function refresh() {
    const data = await request("data");
    fill(
      uploads,
      data.uploads.map((name) =>
        h(
          "tr",
          { data: { upload: name } },
          h("td", h("b", name)),
          h("td", "set ", h("code", "data"), " of a run to ", h("code", name)),
          h(
            "td",
            button(
              "delete",
              async () => {
                await request("delete_data", { name });
                refresh();
              },
              { class: "small" },
            ),
          ),
        ),
      ),
    );
    fill(
      sets,
      data.sets.map((one) =>
        h(
          "tr",
          h("td", h("code", one.name)),
          h("td", one.title),
          h("td", one.kind),
          h(
            "td",
            { class: "number" },
            Object.entries(one.sizes)
              .map(([part, size]) => `${part} ${size.toLocaleString("en")}`)
              .join(", "),
          ),
          h("td", one.license),
          h("td", one.cached ? "yes" : "downloaded at first use"),
        ),
      ),
    );
  }

  async function upload(files) {
    for (const one of files) {
      const name = one.name
        .toLowerCase()
        .replace(/[^a-z0-9._-]+/g, "-")
        .replace(/\.(?=.*\.)/g, "-")
        .replace(/^[^a-z0-9]+/, "");
      status.textContent = `Reading ${one.name} …`;
      const response = await fetch(`/uploads/${encodeURIComponent(name)}`, {
        method: "PUT",
        body: one,
      }).catch(() => null);
      const info = response?.ok ? await response.json() : { error: "The upload failed." };
      if (info.error) {
        status.textContent = "";
        notice(info.error);
        continue;
      }
      status.textContent = `${info.name}: ${KINDS[info.kind] ?? info.kind}, ${Object.entries(
        info.sizes,
      )
        .map(([part, size]) => `${part} ${size.toLocaleString("en")}`)
        .join(", ")}`;
    }
    file.value = "";
    await refresh();
  }
}

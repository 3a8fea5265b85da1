// The data sets there are, and one's own.

import { button, fill, h, notice } from "../dom.js";
import { ask } from "../link.js";

const HOLDS = { text: "text", images: "pictures", points: "points", table: "a table", pairs: "pairs of texts", captions: "pictures with captions" };

export async function show(holder) {
  const own = h("tbody");
  const file = h("input", { type: "file", id: "file", accept: ".txt,.csv,.tsv,.npz,.npy,.zip", onchange: () => bring(file.files) });
  const drop = h("label", { class: "drop", for: "file", ondragover: (event) => { event.preventDefault(); drop.classList.add("over"); }, ondragleave: () => drop.classList.remove("over"),
    ondrop: (event) => { event.preventDefault(); drop.classList.remove("over"); bring(event.dataTransfer.files); } },
    h("b", "Drop a file here, or choose one: "), file,
    h("p", { class: "soft" }, "Text (.txt), tables (.csv, .npz, .npy), pairs of texts (.tsv), or a .zip with a folder of pictures for each class, or of texts; 200 MB at most. It stays on this machine."));
  const said = h("p", { role: "status" });
  const sets = h("tbody");
  fill(holder, h("h1", "Data"), h("h2", "Bring your own"), drop, said,
    h("div", { class: "scroll" }, h("table", own)),
    h("h2", "What there is"), h("div", { class: "scroll" }, h("table", h("thead", h("tr", ["name", "what", "kind", "items", "licence", "on this machine"].map((one) => h("th", one)))), sets)));
  await refresh();

  async function refresh() {
    const data = await ask("data");
    fill(own, data.own.map((name) => h("tr", { data: { own: name } }, h("td", h("b", name)), h("td", h("code", name), " as data of a run"), h("td", button("delete", async () => { await ask("data_delete", { name }); refresh(); }, { class: "small" })))));
    fill(sets, data.sets.map((one) => h("tr", h("td", h("code", one.name)), h("td", one.title), h("td", one.kind), h("td", { class: "number" }, Object.entries(one.sizes).map(([part, size]) => `${part} ${size.toLocaleString("en")}`).join(", ")), h("td", one.licence), h("td", one.here ? "yes" : "at first use"))));
  }

  async function bring(files) {
    for (const one of files) {
      const name = one.name.toLowerCase().replace(/[^a-z0-9._-]+/g, "-").replace(/\.(?=.*\.)/g, "-").replace(/^[^a-z0-9]+/, "");
      said.textContent = `${one.name} is read …`;
      const response = await fetch(`/bring/${encodeURIComponent(name)}`, { method: "PUT", body: one }).catch(() => null);
      const made = response?.ok ? await response.json() : { refused: "The lab did not take the file." };
      if (made.refused) { said.textContent = ""; notice(made.refused); continue; }
      said.textContent = `${made.name}: ${HOLDS[made.kind] ?? made.kind}, ${Object.entries(made.sizes).map(([part, size]) => `${part} ${size.toLocaleString("en")}`).join(", ")}`;
    }
    file.value = "";
    await refresh();
  }
}

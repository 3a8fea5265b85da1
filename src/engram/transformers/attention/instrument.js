// Attention: all heads on a text; switch heads off, edit weights, patch from another text, and see the prediction change.

import { button, dropdown, copyable, fill, h, debounce } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";
import { channel, decodeArray } from "../../socket.js";
import { arcRow } from "./attention_arcs.js";
import { headEffects } from "./head_effects.js";
import { headGrid } from "./heads.js";
import { drawInterventions, interventionList, pack } from "./interventions.js";
import { headMap } from "./map.js";
import { patchPanel } from "./patching.js";
import { prediction } from "./prediction.js";
import { tokenRow } from "./tokens.js";
import { weightEditor } from "./weight_editor.js";

export function mount(holder, { run, step }) {
  const same = getQuery("of", run) === run; // settings of another model do not apply
  if (!same) setQuery({ head: "", position: "", interventions: "" });
  setQuery({ of: run });
  const [layer, head] = getQuery("head", "-1,-1").split(",").map(Number);
  const state = {
    layer,
    head,
    position: Number(getQuery("position", "-1")),
    token: null, // that is hovered
    cell: null, // query and key of the weight that is chosen
    response: null,
    weights: null,
  };
  const latest = channel();
  const updateSoon = debounce(40, update);
  const interventions = interventionList(getQuery("interventions"), update);
  const { isOff } = interventions;

  const text = h("textarea", {
    name: "text",
    rows: 2,
    spellcheck: "false",
    "aria-label": "text",
    value: getQuery("text"),
    oninput: onText,
  });
  const status = h("p", { role: "status", class: "small" });
  const chips = tokenRow({ hover: hoverToken, choose: choosePosition });
  const grid = headGrid({ choose: clickHead, toggle: interventions.toggleHead });
  const map = headMap({
    choose: chooseCell,
    hover: hoverToken,
    change: (by) => setWeight(weight() + by),
    undo: undoEdit,
  });
  const arcs = arcRow({ hover: hoverToken, choose: choosePosition });
  const editor = weightEditor({ change: setWeight, undo: undoEdit });
  const effects = headEffects({
    run,
    step,
    show: (list) => {
      if (state.response) grid.effects(list);
    },
  });
  const patching = patchPanel({
    changed: updateSoon,
    patch: (component, token) => interventions.add("patch", [component, ...headShown(), token]),
  });
  const [title, predicted, changeList, commands] = ["h3", "div", "div", "div"].map((name) =>
    h(name),
  );
  title.style.setProperty("margin-top", "0");
  const mode = dropdown({
    label: "a click on a head",
    name: "mode",
    options: [
      ["enlarge", "enlarges it"],
      ["off", "switches it off or on"],
    ],
    value: "enlarge",
    change: () => {},
  });
  const offButton = button("switch this head off", () => interventions.toggleHead(...headShown()), {
    "aria-pressed": "false",
  });
  const layerButton = button("whole layer off", () =>
    interventions.toggleLayer(state.response.layer, state.response.heads),
  );
  const effectsButton = button("which heads matter?", () =>
    effects.measure(text.value, state.position),
  );

  layOut(holder, {
    above: [text, chips.holder, status],
    heads: [
      grid.grid,
      headHint(),
      h("div", { class: "row" }, mode, effectsButton),
      effects.summary,
    ],
    enlarged: [
      title,
      h("div", { class: "row", style: { margin: ".3rem 0" } }, offButton, layerButton),
      h("div", { class: "scroll" }, map.canvas),
      editor.holder,
    ],
    predicted: [predicted, changeList],
    arcs: arcs.holder,
    below: [patching.element, commands],
  });

  // ---------------------------------------------------------------- requests

  async function update() {
    save();
    try {
      show(
        await latest("attention", {
          run,
          step,
          text: text.value,
          layer: state.layer,
          head: state.head,
          position: state.position,
          ablations: interventions.of("ablation"),
          edits: interventions.of("edit"),
          source: patching.text(),
          patches: interventions.of("patch"),
        }),
      );
    } catch (error) {
      status.textContent = error.message;
      status.style.setProperty("color", "var(--warm)");
    }
  }

  const save = () =>
    setQuery({
      head: state.layer < 0 ? "" : `${state.layer},${state.head}`,
      position: state.position < 0 ? "" : state.position,
      interventions: pack(interventions.all()),
    });

  function onText() {
    setQuery({ text: text.value });
    state.position = -1;
    state.cell = null;
    interventions.forgetTokens();
    effects.clear();
    updateSoon();
  }

  // ---------------------------------------------------------------- drawing

  function show(response) {
    const count = response.tokens.length;
    if (!text.value) text.value = response.text;
    state.response = response;
    state.weights = decodeArray(response.weights);
    if (state.cell && Math.max(...state.cell) >= count) state.cell = null;
    if (state.token >= count) state.token = null;
    status.style.removeProperty("color");
    status.textContent = `${count} tokens${response.truncated ? `; ${response.truncated} more are not read` : ""}.`;
    grid.show(response, isOff);
    drawTitle();
    fill(predicted, prediction(response));
    chips.draw(response);
    drawHead();
    editor.draw(state, isEdited());
    drawInterventions(changeList, interventions, response.tokens);
    patching.draw(response);
    drawCommands();
  }

  function drawTitle() {
    const off = isOff(...headShown());
    title.textContent = `Layer ${state.response.layer}, head ${state.response.head}${off ? " (off)" : ""}`;
    title.title = state.response.summary;
    offButton.setAttribute("aria-pressed", off);
    offButton.textContent = off ? "switch this head on" : "switch this head off";
  }

  function drawHead() {
    const { response, weights, cell, token } = state;
    const edits = interventions
      .of("edit")
      .filter(([l, i]) => l === response.layer && i === response.head)
      .map(([, , query, key]) => ({ query, key }));
    map.draw(weights, response.tokens, { cell, token, edits, causal: response.kind === "gpt" });
    arcs.draw(weights, response.tokens, token);
    chips.shade(weights, token);
  }

  function drawCommands() {
    const open = commands.querySelector("details")?.open;
    fill(
      commands,
      h(
        "details",
        { open },
        h("summary", "The same in Python"),
        copyable("Python", python(run, state.response)),
      ),
    );
  }

  // ---------------------------------------------------------------- interaction

  const headShown = () => [state.response.layer, state.response.head];
  const findEdit = () => state.cell && interventions.find("edit", [...headShown(), ...state.cell]);
  const isEdited = () => Boolean(findEdit());
  const weight = () => (state.cell ? (findEdit()?.args[4] ?? state.weights.at(...state.cell)) : 0);

  function hoverToken(token) {
    if (!state.response || token === state.token) return;
    state.token = token;
    drawHead();
  }

  function clickHead(l, i) {
    if (mode.select.value === "off") {
      interventions.toggleHead(l, i);
      return;
    }
    [state.layer, state.head] = [l, i];
    update();
  }

  function choosePosition(i) {
    state.position = i;
    effects.clear();
    update();
  }

  function chooseCell(cell) {
    state.cell = cell;
    drawHead();
    editor.draw(state, isEdited());
  }

  function setWeight(value) {
    if (!state.cell) return;
    const rounded = Math.round(100 * Math.max(0, Math.min(1, value))) / 100;
    interventions.edit([...headShown(), ...state.cell], rounded);
    [state.layer, state.head] = headShown();
    updateSoon();
  }

  function undoEdit() {
    const was = findEdit();
    if (!was) return;
    editor.blur();
    interventions.remove(was);
  }

  const resized = new ResizeObserver(
    debounce(100, () => {
      if (state.response) arcs.draw(state.weights, state.response.tokens, state.token);
    }),
  );
  resized.observe(holder);
  update();
  return () => {
    latest.stop();
    effects.stop();
    resized.disconnect();
  };
}

const headHint = () =>
  h(
    "p",
    { class: "soft small", style: { "margin-top": ".5rem" } },
    "Rows are layers, columns heads; bright cells have large weights. Arrow keys walk, Enter enlarges, O switches off.",
  );

const layOut = (holder, { above, heads, enlarged, predicted, arcs, below }) =>
  fill(
    holder,
    above,
    h(
      "div",
      {
        class: "halves",
        style: { "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 21rem), 1fr))" },
      },
      h("div", h("h3", { style: { "margin-top": 0 } }, "Heads"), heads),
      h("div", { class: "enlarged" }, enlarged),
      h("div", { class: "panel" }, predicted),
    ),
    h(
      "figure",
      { style: { "margin-top": "1rem" } },
      arcs,
      h(
        "figcaption",
        { class: "small" },
        "Point at a token: blue arcs above go to the tokens it attends to, orange ones below come from those that attend to it; a dot is attention to itself. Click a token to predict there.",
      ),
    ),
    below,
  );

function python(run, { text, layer, head }) {
  const quoted = `"${text.replaceAll("\\", "\\\\").replaceAll('"', '\\"').replaceAll("\n", "\\n")}"`;
  const where = run.includes("/") ? run : `runs/${run}`;
  return `import engram, torch
model = engram.load("${where}")
x = torch.tensor([model.tokenizer.encode(${quoted})])
def ablate(heads):  # batch × heads × tokens × width
    heads[:, ${head}] = 0
    return heads
with engram.watch(model, "*attention.weights", replace={"blocks.${layer}.attention.heads": ablate}) as seen:
    logits = model(x)`;
}

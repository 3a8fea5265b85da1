// Hopfield networks: a drawing is the cue of two networks that have stored the same patterns; both recall as one draws.

import { copyable, fill, h, mathml } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";
import { request } from "../../socket.js";
import { ClassicNetwork } from "./classic_network.js";
import { cue } from "./cue.js";
import { digits, pixels } from "./drawings.js";
import { modernNetwork } from "./modern_network.js";
import { patternGallery } from "./pattern_gallery.js";

const FIRST = { stored: ["smile", "moon", "star", "cup", "key"], pattern: "moon" };
const COLUMNS = {
  display: "grid",
  gap: "1.2rem 1.6rem",
  "grid-template-columns": "repeat(auto-fit, minmax(min(100%, 20rem), 1fr))",
  "align-items": "start",
};

export async function mount(holder) {
  const { side, patterns, equations } = await request("hopfield.gallery");
  const set = storedSettings(patterns);
  const formulas = Object.fromEntries(
    Object.entries(equations).map(([name, { text, mathml: marked }]) => [
      name,
      h("p", marked ? mathml(marked) : h("code", text)),
    ]),
  );
  const input = cue({
    side,
    patterns,
    set,
    changed: recall,
    corrupted: () => classic.play(),
    change,
  });
  const { board } = input;
  const classic = new ClassicNetwork(side, { mark: board.mark, set, change, formulas });
  const modern = modernNetwork(side, { set, change, formulas });
  const gallery = patternGallery({ side, patterns, first: FIRST.stored, set, change });
  const wrong = h("p", { role: "alert", hidden: true });
  const code = h("div");
  fill(
    holder,
    gallery.element,
    wrong,
    h(
      "div",
      { style: { ...COLUMNS, "margin-top": "1.2rem" } },
      input.element,
      classic.element,
      modern.element,
    ),
    code,
  );

  function change(changes) {
    Object.assign(set, changes);
    recall();
  }

  async function recall() {
    set.drawing = digits(board.values);
    setQuery({ ...set, stored: set.stored.join() || ",", drawings: set.drawings.join() });
    gallery.show();
    fill(code, copyable("in Python", python(set)));
    const { stored, drawings, drawing, rule, seed, steps } = set;
    const synchronous = set.update === "synchronous";
    try {
      await Promise.all([
        classic.recall({ stored, drawings, drawing, rule, synchronous, seed }),
        modern.recall({ stored, drawings, drawing, beta: 2 ** set.beta, steps }),
      ]);
      wrong.hidden = true;
    } catch (error) {
      Object.assign(wrong, { hidden: false, textContent: error.message });
    }
  }

  if (set.drawing.length === side ** 2 / 4) input.take(set.drawing);
  else {
    board.set(pixels(patterns[FIRST.pattern]));
    input.corrupt("flip");
  }
  return () => {
    board.stop();
    classic.stop();
    modern.stop();
  };
}

// Settings in the URL.
function storedSettings(patterns) {
  const list = (name, otherwise) => getQuery(name, otherwise).split(",").filter(Boolean);
  return {
    stored: list("stored", FIRST.stored.join()).filter((name) => name in patterns),
    drawings: list("drawings"),
    drawing: getQuery("drawing"),
    rule: getQuery("rule", "hebb"),
    update: getQuery("update", "asynchronous"),
    seed: Number(getQuery("seed", "0")),
    beta: Number(getQuery("beta", "-5")),
    steps: Number(getQuery("steps", "1")),
  };
}

function python(set) {
  return `import torch
from engram.data.patterns import icons, letters
from engram.memory.hopfield.model import Hopfield
from engram.memory.modern_hopfield.model import ModernHopfield

known = {**icons(), **letters()}
X = torch.stack([known[name] for name in ${JSON.stringify(set.stored)}]).flatten(1).float()
cue = torch.where(torch.rand(X.shape) < 0.25, -X, X)
Hopfield(Hopfield.Config(units=100)).store(X, "${set.rule}").recall(cue${set.update === "synchronous" ? ", synchronous=True" : ""})
ModernHopfield.from_patterns(X, beta=${(2 ** set.beta).toPrecision(2)}).recall(cue, steps=${set.steps})`;
}

// Interventions in the model: heads that are off, weights that are edited, activations that are patched.

import { button, fill, h } from "../../dom.js";
import { percent, tokenLabel } from "./colors.js";

const KINDS = { a: "ablation", e: "edit", p: "patch" };

// In the address: a,layer,head (ablation); e,layer,head,query,key,weight (edit); p,component,layer,head,token (patch)
export const pack = (interventions) =>
  interventions.map((one) => [one.kind[0], ...one.args].join(",")).join(";");

export const unpack = (text) =>
  text
    .split(";")
    .filter(Boolean)
    .map((one) => {
      const [kind, ...args] = one.split(",");
      return {
        kind: KINDS[kind],
        args: args.map((part, i) => (kind === "p" && i === 0 ? part : Number(part))),
      };
    })
    .filter((one) => one.kind);

// The interventions that the text of the address names; changed() is called after every change but those of `edit`.
export function interventionList(text, changed) {
  let all = unpack(text);
  const find = (kind, args) =>
    all.find((one) => one.kind === kind && args.every((part, i) => one.args[i] === part));
  const keep = (isKept) => {
    all = all.filter(isKept);
  };
  const isOff = (layer, head) => Boolean(find("ablation", [layer, head]));
  const remove = (one) => {
    keep((other) => other !== one);
    changed();
  };
  const add = (kind, args) => {
    if (!find(kind, args)) all.push({ kind, args });
    changed();
  };

  function toggleHead(layer, head) {
    const was = find("ablation", [layer, head]);
    if (was) remove(was);
    else add("ablation", [layer, head]);
  }

  function toggleLayer(layer, heads) {
    const left = Array.from({ length: heads }, (_, head) => head).filter(
      (head) => !isOff(layer, head),
    );
    all.push(...left.map((head) => ({ kind: "ablation", args: [layer, head] })));
    if (!left.length) keep((one) => one.kind !== "ablation" || one.args[0] !== layer);
    changed();
  }

  // Set the weight of a cell, [layer, head, query, key].
  function edit(cell, weight) {
    const was = find("edit", cell);
    if (was) was.args[4] = weight;
    else all.push({ kind: "edit", args: [...cell, weight] });
  }

  // Forget what belongs to tokens of a text that was changed.
  const forgetTokens = () =>
    keep((one) => one.kind === "ablation" || (one.kind === "patch" && one.args[3] < 0));

  return {
    all: () => all,
    of: (kind) => all.filter((one) => one.kind === kind).map((one) => one.args),
    find,
    isOff,
    add,
    remove,
    clear: () => {
      keep(() => false);
      changed();
    },
    toggleHead,
    toggleLayer,
    edit,
    forgetTokens,
  };
}

// The list as buttons that undo.
export function drawInterventions(holder, { all, remove, clear }, tokens) {
  const quoted = (i) => `"${tokenLabel(tokens[i] ?? "?")}"`;
  const describe = {
    ablation: ([l, i]) => `${l}·${i} off`,
    edit: ([l, i, query, key, w]) => `${l}·${i} ${quoted(query)} → ${quoted(key)} ${percent(w)}`,
    patch: ([kind, l, i, token]) =>
      `${kind === "head" ? `${l}·${i}` : `${kind} ${l}`} patched${token < 0 ? "" : ` at ${quoted(token)}`}`,
  };
  fill(
    holder,
    all().length > 0 && [
      h(
        "div",
        { class: "row", role: "list", "aria-label": "interventions" },
        all().map((one) => {
          const text = describe[one.kind](one.args);
          return h(
            "span",
            { role: "listitem" },
            button(`${text} ×`, () => remove(one), {
              class: "small",
              "aria-label": `undo ${text}`,
            }),
          );
        }),
      ),
      h(
        "div",
        { class: "row", style: { "margin-top": ".5rem" } },
        button("undo the last", () => remove(all().at(-1)), { class: "small" }),
        button("undo all", clear, { class: "small" }),
      ),
    ],
  );
}

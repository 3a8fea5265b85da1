// Activation patching: a source text, and which of its activations replaces that of the text.

import { button, dropdown, fill, h } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";
import { tokenLabel } from "./colors.js";

const COMPONENTS = {
  head: "the output of this head",
  attention: "the attention of this layer",
  residual: "the residual stream after this layer",
};

// changed(): called with a new source text; patch(component, token): the token is -1 for all
export function patchPanel({ changed, patch }) {
  const source = h("textarea", {
    name: "source",
    rows: 2,
    spellcheck: "false",
    "aria-label": "source text",
    value: getQuery("source"),
    oninput: () => {
      setQuery({ source: source.value });
      changed();
    },
  });
  const tokens = h("p", { class: "small" });
  const component = dropdown({
    label: "take",
    name: "component",
    options: Object.entries(COMPONENTS),
    value: "head",
    change: () => {},
  });
  const at = dropdown({
    label: "at",
    name: "at",
    options: [["-1", "every token"]],
    value: "-1",
    change: () => {},
  });
  const patchButton = button(
    "patch",
    () => patch(component.select.value, Number(at.select.value)),
    {
      class: "main",
    },
  );
  const element = h(
    "details",
    { open: Boolean(source.value) },
    h("summary", "Patch from another sentence"),
    h(
      "p",
      { class: "soft small" },
      "Activation patching: write a source text of as many tokens, and replace an activation by that of the source text. If the prediction follows, the difference is there.",
    ),
    source,
    tokens,
    h("div", { class: "row" }, component, at, patchButton),
  );

  function draw(response) {
    const chosen = at.select.value;
    fill(
      at.select,
      h("option", { value: "-1" }, "every token"),
      response.tokens.map((token, i) =>
        h("option", { value: String(i) }, optionText(token, response.source[i], i)),
      ),
    );
    at.select.value = Number(chosen) < response.tokens.length ? chosen : "-1";
    drawTokens(tokens, response);
  }

  return { element, text: () => source.value, draw };
}

const optionText = (token, source, i) =>
  `${i}: ${tokenLabel(token)}${source !== undefined && source !== token ? ` ← ${tokenLabel(source)}` : ""}`;

// The tokens of the source text; those that differ are marked.
function drawTokens(holder, { patch_error: problem, source, tokens }) {
  const message =
    problem ||
    (source.length
      ? `${source.length} tokens, as many as above.`
      : `It takes ${tokens.length} tokens.`);
  fill(
    holder,
    h("span", { style: { color: problem ? "var(--warm)" : "var(--soft)" } }, message),
    " ",
    source.map((token, i) =>
      h(
        "span",
        {
          class: "mono",
          style: { color: token === tokens[i] ? "var(--soft)" : "var(--warm)" },
        },
        `${tokenLabel(token)} `,
      ),
    ),
  );
}

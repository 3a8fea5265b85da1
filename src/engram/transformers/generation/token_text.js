// The text, token by token: the less probable, the more orange. Arrow keys walk from token to token.

import { fill, h } from "../../dom.js";
import { percent, tokenLabel } from "../attention/colors.js";

const MAX_BITS = 8; // of surprise, from which tokens have the same color

export function tokenText({ hover, leave, choose }) {
  const holder = h("div", {
    class: "panel mono text",
    role: "group",
    "aria-label": "the text",
    style: {
      "white-space": "pre-wrap",
      "min-height": "12rem",
      "max-height": "26rem",
      "overflow-y": "auto",
      "font-size": ".95rem",
      "line-height": 1.75,
      "overflow-wrap": "anywhere",
    },
    onkeydown: onKey,
    onpointerleave: leave,
  });

  const chip = (token, i, chosen = null) =>
    h(
      "span",
      {
        role: "button",
        tabindex: i ? -1 : 0,
        data: { token: i, sampled: !token.prompt },
        "aria-label": `${tokenLabel(token.name)}${token.p === undefined ? "" : `, ${percent(token.p)}`}`,
        "aria-pressed": String(i === chosen),
        title: token.p === undefined ? "" : percent(token.p),
        style: chipStyle(token),
        onpointerenter: () => hover(i),
        onfocus: () => hover(i),
        onblur: leave,
        onclick: () => choose(i),
      },
      token.piece === "" ? tokenLabel(token.name) : token.piece.replaceAll("\n", "⏎\n"),
    );

  function onKey(event) {
    const now = [...holder.children].indexOf(document.activeElement);
    const to = {
      ArrowLeft: now - 1,
      ArrowRight: now + 1,
      Home: 0,
      End: holder.children.length - 1,
    }[event.key];
    if (event.key === "Enter" || event.key === " ") choose(now);
    else if (to === undefined || !holder.children[to]) return;
    else {
      holder.children[now].tabIndex = -1;
      holder.children[to].tabIndex = 0;
      holder.children[to].focus();
    }
    event.preventDefault();
  }

  function press(i) {
    holder
      .querySelectorAll("[aria-pressed=true]")
      .forEach((one) => one.setAttribute("aria-pressed", "false"));
    holder.children[i]?.setAttribute("aria-pressed", "true");
  }

  const draw = (tokens, chosen) =>
    fill(
      holder,
      tokens.map((token, i) => chip(token, i, chosen)),
    );
  const append = (token) => holder.append(chip(token, holder.children.length));
  const scrollToEnd = () => {
    holder.scrollTop = holder.scrollHeight;
  };
  return { holder, draw, append, press, scrollToEnd };
}

function chipStyle({ prompt, byHand, p, piece }) {
  const bits = p === undefined ? 0 : p > 0 ? Math.min(MAX_BITS, -Math.log2(p)) : MAX_BITS;
  return {
    background: `color-mix(in srgb, var(--warm) ${Math.round(prompt ? 0 : 7.5 * bits)}%, transparent)`,
    "border-bottom": prompt ? "2px solid var(--line)" : byHand ? "2px solid var(--accent)" : false,
    cursor: "pointer",
    "border-radius": "2px",
    color: piece.endsWith("\n") ? "var(--soft)" : false,
  };
}

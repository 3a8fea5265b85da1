// Word map: search a word, see its neighbors, wander; complete analogies; compare two words.

import { drawFigure } from "../../charts.js";
import { button, copyable, fill, uniqueId, h, debounce } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";
import { channel, decodeArray } from "../../socket.js";
import { wordMap } from "../../wordmap.js";

export async function mount(holder, { run, step }) {
  const [searching, suggesting, solving, comparing] = [channel(), channel(), channel(), channel()];
  const found = await searching("words.map", { run, step });
  const { values } = decodeArray(found.xy);
  const suggestions = h("datalist", { id: uniqueId("words") });
  const folder = run.includes("/") ? run : `runs/${run}`;

  // An input that suggests words while one types, and acts when what is typed is a word, or on Enter.
  function word(name, label, value, act) {
    const input = h("input", {
      type: "text",
      name,
      value,
      "aria-label": label,
      list: suggestions.id,
      maxlength: 60,
      autocomplete: "off",
      autocapitalize: "none",
      spellcheck: "false",
      style: { width: "9.5rem" },
      oninput: () => typed(input, act),
      onkeydown: (event) => {
        if (event.key === "Enter") act();
      },
    });
    return input;
  }
  const typed = debounce(120, async (input, act) => {
    const { words, known } = await suggesting("words.complete", {
      run,
      step,
      prefix: input.value.trim(),
    });
    fill(
      suggestions,
      words.map((one) => h("option", { value: one })),
    );
    if (known) act();
  });

  // ------------------------------------------------------------------ a word and its neighbors

  const search = word("word", "word", getQuery("word", found.examples.words[0]), showNeighbors);
  const status = h("p", { role: "status", class: "found" });
  const bars = h("div", { class: "bars", "aria-label": "nearest words" });
  const command = h("div");
  const map = wordMap({ label: "map of words", chosen: goTo });
  map.set(found.words.map((one, i) => ({ word: one, x: values[2 * i], y: values[2 * i + 1] })));
  function goTo(one) {
    search.value = one;
    showNeighbors();
  }

  async function showNeighbors() {
    const query = search.value.trim();
    setQuery({ word: query });
    try {
      const answer = await searching("words", { run, step, word: query });
      status.textContent = `"${answer.word}" occurs ${answer.occurs.toLocaleString("en")} times: number ${answer.rank.toLocaleString("en")} of ${found.all.toLocaleString("en")} words.`;
      fill(
        bars,
        answer.near.map((one) => bar(one.word, one.cosine, goTo)),
      );
      const point = (one) => ({ word: one.word, x: one.at[0], y: one.at[1] });
      map.mark(point(answer), answer.near.map(point));
      fill(command, copyable("command line", `engram sample ${folder} --words ${answer.word}`));
    } catch (error) {
      status.textContent = error.message;
      fill(bars);
      map.mark(null, []);
    }
  }

  // ------------------------------------------------------------------ a is to b as c is to ?

  const first = getQuery("analogy", found.examples.analogy.join(" ")).split(" ");
  const three = ["a", "b", "c"].map((name, i) =>
    word(name, `analogy ${name}`, first[i] ?? "", solve),
  );
  const solved = h("p", { role: "status", class: "solved" });
  const parts = h("div", { class: "scroll" });
  const arrows = h("div");
  const arrowsCaption = h("figcaption", { class: "small" });

  async function solve() {
    const [a, b, c] = three.map((one) => one.value.trim());
    setQuery({ analogy: [a, b, c].join(" ") });
    if (!a || !b || !c) {
      solved.textContent = "Three words are needed.";
      return;
    }
    try {
      const answer = await solving("words.analogy", { run, step, a, b, c });
      const [best] = answer.answers;
      fill(
        solved,
        `${answer.words[1]} − ${answer.words[0]} + ${answer.words[2]} ≈ `,
        h("b", best.word),
        `, cosine ${best.cosine.toFixed(2)}`,
      );
      fill(parts, table(answer));
      arrowsCaption.textContent = answer.caption;
      drawFigure(arrows, {
        data: answer.plot.data.map((one) => ({ ...one, cliponaxis: false })),
        layout: { ...answer.plot.layout, height: 320 },
      });
    } catch (error) {
      solved.textContent = error.message;
      fill(parts);
      Plotly.purge(arrows);
      arrowsCaption.textContent = "";
    }
  }

  // Each answer's cosine with b − a + c is made of its cosines with the three words.
  function table({ words: [a, b, c], answers, length }) {
    const number = (x, sign = "") =>
      h("td", { class: "number" }, `${sign}${x < 0 ? "−" : ""}${Math.abs(x).toFixed(2)}`);
    return h(
      "table",
      h(
        "thead",
        h(
          "tr",
          h("th", "answer"),
          h("th", `+ like ${b}`),
          h("th", `− like ${a}`),
          h("th", `+ like ${c}`),
          h("th", `sum ÷ ${length.toFixed(2)}`),
        ),
      ),
      h(
        "tbody",
        answers.map(({ word: one, cosine, parts: [like_a, like_b, like_c] }) =>
          h(
            "tr",
            h(
              "td",
              button(one, () => goTo(one), { class: "small" }),
            ),
            number(like_b),
            number(-like_a),
            number(like_c),
            number(cosine),
          ),
        ),
      ),
    );
  }

  // ------------------------------------------------------------------ two words

  const pair = getQuery(
    "pair",
    [found.examples.analogy[1], found.examples.analogy[2]].join(" "),
  ).split(" ");
  const two = ["one", "other"].map((name, i) =>
    word(name, `${name} of two words`, pair[i] ?? "", compare),
  );
  const compared = h("p", { role: "status", class: "compared" });
  const dial = h("div");

  async function compare() {
    const [a, b] = two.map((one) => one.value.trim());
    setQuery({ pair: [a, b].join(" ") });
    if (!a || !b) {
      compared.textContent = "Two words are needed.";
      return;
    }
    try {
      const answer = await comparing("words.similarity", { run, step, a, b });
      compared.textContent =
        answer.a === answer.b
          ? "The same word: cosine 1."
          : `cosine ${answer.cosine.toFixed(2)}, an angle of ${Math.round(answer.degrees)}°; "${answer.b}" is number ${answer.rank.toLocaleString("en")} of ${answer.of.toLocaleString("en")} nearest to "${answer.a}".`;
      fill(dial, angle(answer));
    } catch (error) {
      compared.textContent = error.message;
      fill(dial);
    }
  }

  // ------------------------------------------------------------------ the page

  fill(
    holder,
    suggestions,
    h(
      "div",
      { class: "two" },
      h(
        "div",
        { class: "panel" },
        h("div", { class: "row" }, search, button("find", showNeighbors, { class: "main" })),
        h(
          "div",
          { class: "row", style: { margin: ".5rem 0" } },
          found.examples.words
            .slice(0, 5)
            .map((one) => button(one, () => goTo(one), { class: "small" })),
        ),
        status,
        h("p", { class: "soft small" }, "Nearest by cosine similarity. Click a word to go to it."),
        bars,
        command,
      ),
      h(
        "figure",
        h(
          "figcaption",
          { class: "small" },
          `The ${found.words.length} most frequent words after stop words, on their first two principal components (${Math.round(100 * found.share)} % of the variance).`,
        ),
        map.element,
      ),
    ),
    h(
      "div",
      { class: "halves" },
      h(
        "section",
        h("h2", "Analogy"),
        h(
          "div",
          { class: "row" },
          three[0],
          "is to",
          three[1],
          "as",
          three[2],
          "is to …",
          button("answer", solve),
        ),
        solved,
        parts,
        h(
          "p",
          { class: "soft small" },
          "Answers are similar to b and c and dissimilar to a; words of the question are excluded.",
        ),
        h("figure", arrowsCaption, arrows),
      ),
      h(
        "section",
        h("h2", "Two words"),
        h("div", { class: "row" }, two, button("compare", compare)),
        compared,
        dial,
      ),
    ),
  );

  showNeighbors();
  solve();
  compare();
  return () => {
    [searching, suggesting, solving, comparing].forEach((one) => one.stop());
    map.stop();
  };
}

function bar(name, value, act) {
  return [
    button(name, () => act(name), { class: "small" }),
    h("div", h("div", { class: "bar", style: { width: `${100 * Math.max(0, value)}%` } })),
    h("span", { style: { "font-variant-numeric": "tabular-nums" } }, value.toFixed(2)),
  ];
}

// Two arrows from one point, as far apart as the words are.
function angle({ a, b, degrees }) {
  const [x, y, long] = [160, 185, 135];
  const end = (turn) => [
    x + long * Math.cos((turn * Math.PI) / 180),
    y - long * Math.sin((turn * Math.PI) / 180),
  ];
  const arrow = (turn, text, color) => {
    const [x1, y1] = end(turn);
    return [
      h("line", { x1: x, y1: y, x2: x1, y2: y1, stroke: color, "stroke-width": 3 }),
      h("circle", { cx: x1, cy: y1, r: 5, fill: color }),
      h(
        "text",
        {
          x: x1,
          y: y1 - 10,
          fill: color,
          "text-anchor": x1 > 260 ? "end" : x1 < 60 ? "start" : "middle",
          "font-size": 15,
          "font-weight": 600,
        },
        text,
      ),
    ];
  };
  const [left, right] = [90 + degrees / 2, 90 - degrees / 2];
  const [ax, ay, bx, by] = [left, right].flatMap((turn) => [
    x + 40 * Math.cos((turn * Math.PI) / 180),
    y - 40 * Math.sin((turn * Math.PI) / 180),
  ]);
  return h(
    "svg",
    {
      viewBox: "0 0 320 330",
      width: 320,
      role: "img",
      "aria-label": `an angle of ${Math.round(degrees)} degrees`,
      style: { "max-width": "100%" },
    },
    h("path", {
      d: `M ${ax} ${ay} A 40 40 0 0 1 ${bx} ${by}`,
      fill: "none",
      stroke: "var(--soft)",
    }),
    arrow(left, a, "var(--accent)"),
    arrow(right, b, "var(--warm)"),
    h(
      "text",
      { x, y: y - 50, "text-anchor": "middle", fill: "var(--soft)", "font-size": 13 },
      `${Math.round(degrees)}°`,
    ),
  );
}

// Text generation: tokens as they are sampled, each with its probabilities; sampling parameters apply to the next tokens.

import { button, copyable, fill, h, debounce, slider } from "../../dom.js";
import { setQuery, getQuery } from "../../lab.js";
import { channel } from "../../socket.js";
import { pacing } from "./pacing.js";
import { pack, samplingParameters, segments, unpack } from "./sampling_parameters.js";
import { tokenDetail } from "./token_detail.js";
import { tokenText } from "./token_text.js";

export function mount(holder, { run, step }) {
  if (getQuery("of", run) !== run) setQuery({ tokens: "", segments: "", by_hand: "" }); // tokens of another model do not apply
  setQuery({ of: run });
  const state = {
    promptTokens: [],
    generated: [],
    generating: false,
    chosen: null,
    hovered: null,
    ended: "", // why generation has ended
    rate: null, // tokens per second
    seed: Number(getQuery("seed", "0")),
  };
  const all = () => [...state.promptTokens, ...state.generated];
  const [generation, scoring] = [channel(), channel()];

  const prompt = h("textarea", {
    name: "prompt",
    rows: 2,
    spellcheck: "false",
    "aria-label": "prompt",
    value: getQuery("prompt"),
    oninput: () => {
      setQuery({ prompt: prompt.value });
      stop();
      restart();
    },
  });
  const status = h("p", { role: "status", class: "small" });
  const numbers = h("ul", { class: "cards" });
  const commands = h("div");
  const text = tokenText({
    hover: hoverToken,
    leave: () => {
      state.hovered = state.chosen;
    },
    choose: chooseToken,
  });
  const detail = tokenDetail({
    replace: replaceToken,
    cut,
    cutAndContinue: (i) => {
      cut(i);
      generate();
    },
  });
  const parameters = samplingParameters(() => {
    drawCommands();
    regenerate();
  });
  const arrived = pacing(showTokens);
  const length = slider({
    label: "tokens at a time",
    name: "max_new_tokens",
    low: 20,
    high: 400,
    step: 20,
    value: Number(getQuery("max_new_tokens", "200")),
    show: String,
    change: (x) => setQuery({ max_new_tokens: x }),
  });
  const generateButton = button("stop", () => (state.generating ? stop() : generate()), {
    class: "main",
  });
  const seedButton = button("another seed", () => {
    state.seed = (state.seed + 1) % 1000;
    setQuery({ seed: state.seed });
    start();
  });

  const actions = [generateButton, seedButton, button("from the prompt", start)];
  layOut(holder, {
    controls: controlPanel(parameters, length, arrived.slider),
    prompt,
    actions: h("div", { class: "row", style: { margin: ".5rem 0" } }, actions, status),
    text: text.holder,
    below: [numbers, detail.holder, commands],
  });

  // ---------------------------------------------------------------- generation

  async function generate() {
    arrived.clear();
    [state.generating, state.ended] = [true, ""];
    const settings = parameters.list();
    const params = {
      run,
      step,
      prompt: prompt.value,
      tokens: state.generated.map(({ id }) => id),
      ...parameters.values,
      seed: state.seed,
      max_new_tokens: Number(length.input.value),
    };
    let [count, seconds] = [0, 0];
    drawState();
    try {
      const end = await generation("generation", params, (part) => {
        [count, seconds] = [count + part.tokens.length, seconds + part.seconds];
        state.rate = count / seconds;
        arrived.add(part.tokens.map((one) => ({ ...one, settings })));
      });
      state.ended = end.ended ? "The model ended the text." : end.full ? "The text is full." : "";
      arrived.add([null]);
    } catch (error) {
      showError(error);
    }
  }

  // Append tokens to the text; null is the end.
  function showTokens(tokens) {
    for (const one of tokens) {
      if (one === null) {
        stop();
        return;
      }
      state.generated.push(one);
      text.append(one);
    }
    if (state.hovered === null) {
      showDetail(all().length - 1);
      text.scrollToEnd();
    }
    drawState();
  }

  function stop() {
    generation.stop();
    arrived.clear();
    state.generating = false;
    drawState();
    save();
  }

  // A setting changed: continue from the shown tokens, and sample those that are not shown yet anew.
  const regenerate = debounce(60, () => {
    if (state.generating) {
      generation.stop();
      generate();
    }
  });

  // Score the prompt, and generate from there.
  async function start() {
    stop();
    [state.generated, state.chosen, state.hovered, state.generating] = [[], null, null, true];
    drawState();
    try {
      await read([], []);
      drawText();
      await generate();
    } catch (error) {
      showError(error);
    }
  }

  const restart = debounce(500, start);

  function showError(error) {
    stop();
    status.textContent = error.message;
    status.style.setProperty("color", "var(--warm)");
  }

  // ---------------------------------------------------------------- scoring

  // Score the prompt, and tokens that were generated before.
  async function read(tokens, textSegments) {
    state.promptTokens = [];
    let promptTokens = 0;
    const by = textSegments.flatMap(([count, ...one]) => Array.from({ length: count }, () => one));
    const byHand = new Set(getQuery("by_hand").split(",").filter(Boolean).map(Number));
    await score(tokens, textSegments, (part) => {
      if ("prompt" in part) {
        promptTokens = part.prompt_tokens;
        if (!prompt.value) prompt.value = part.prompt;
      }
      for (const one of part.tokens) {
        const i = state.generated.length;
        if (state.promptTokens.length < promptTokens)
          state.promptTokens.push({ ...one, prompt: true });
        else state.generated.push({ ...one, settings: by[i], byHand: byHand.has(i) });
      }
    });
  }

  const score = (tokens, textSegments, part) =>
    scoring(
      "generation.score",
      { run, step, prompt: prompt.value, tokens, segments: textSegments },
      part,
    );

  async function restore() {
    try {
      await read(getQuery("tokens").split(".").map(Number), unpack(getQuery("segments")));
      drawText();
      drawState();
    } catch (error) {
      showError(error);
    }
  }

  const save = () =>
    setQuery({
      tokens: state.generated.map(({ id }) => id).join("."),
      segments: pack(state.generated),
      by_hand: state.generated.flatMap(({ byHand }, i) => (byHand ? [i] : [])).join(),
    });

  // ---------------------------------------------------------------- drawing

  function drawText() {
    text.draw(all(), state.chosen);
    showDetail(state.chosen ?? all().length - 1);
  }

  function drawState() {
    generateButton.textContent = state.generating
      ? "stop"
      : state.generated.length
        ? "continue"
        : "generate";
    generateButton.disabled = state.ended === "The text is full.";
    status.style.removeProperty("color");
    status.textContent = state.generating ? "generating …" : state.ended;
    fill(
      numbers,
      card(String(state.generated.length), "generated tokens", "generated"),
      card(perplexity(all()), "perplexity of the text", "perplexity"),
      card(perplexity(state.generated), "of the generated text", "generated_perplexity"),
      card(state.rate ? state.rate.toPrecision(3) : "–", "tokens/s", "rate"),
      card(String(state.seed), "seed", "seed"),
    );
    drawCommands();
  }

  function drawCommands() {
    const quoted = `$'${prompt.value.replaceAll("\\", "\\\\").replaceAll("'", "\\'").replaceAll("\n", "\\n")}'`;
    const line = `engram sample ${run.includes("/") ? run : `runs/${run}`} --prompt ${quoted} --max-new-tokens ${length.input.value} --seed ${state.seed}${parameters.flags()}`;
    if (commands.dataset.line !== line) {
      commands.dataset.line = line;
      fill(commands, copyable("command line", line));
    }
  }

  function showDetail(i) {
    const one = all()[i];
    if (one) detail.show(one, i);
  }

  // ---------------------------------------------------------------- interaction

  // While a token is hovered, new tokens do not replace it in the detail panel.
  function hoverToken(i) {
    state.hovered = i;
    showDetail(i);
  }

  function chooseToken(i) {
    [state.chosen, state.hovered] = [i, i];
    text.press(i);
    if (i >= state.promptTokens.length) stop();
    showDetail(i);
    detail.holder.scrollIntoView({ block: "nearest" });
  }

  function cut(i) {
    stop();
    state.generated = state.generated.slice(0, i - state.promptTokens.length);
    [state.chosen, state.hovered, state.ended] = [null, null, ""];
    drawText();
    drawState();
    detail.clear();
  }

  // Take another token at this position, and continue from there.
  async function replaceToken(i, id, p) {
    const one = state.generated[i - state.promptTokens.length];
    cut(i);
    try {
      state.generated.push(id === one.id ? one : await scoreToken({ ...one, id, p }));
      drawText();
      showDetail(i);
    } catch (error) {
      showError(error);
      return;
    }
    generate();
  }

  // Score a token that is chosen by hand: the text that it adds, and its probability.
  async function scoreToken(one) {
    const tokens = [...state.generated, one];
    let last = null;
    await score(
      tokens.map(({ id }) => id),
      segments(tokens),
      (part) => {
        last = part.tokens.at(-1) ?? last;
      },
    );
    return { ...last, settings: one.settings, byHand: true };
  }

  if (getQuery("tokens")) restore();
  else start();
  return () => {
    generation.stop();
    scoring.stop();
    arrived.clear();
  };
}

const controlPanel = ({ sliders, values }, length, pace) =>
  h(
    "div",
    { class: "panel" },
    sliders.slice(0, 3),
    h(
      "details",
      { open: values.min_p > 0 || values.repetition_penalty > 1 },
      h("summary", { class: "small" }, "more"),
      sliders.slice(3),
      length,
    ),
    pace,
    h(
      "p",
      { class: "soft small" },
      "Move a slider while text is generated: the next tokens are sampled with the new setting.",
    ),
  );

const layOut = (holder, { controls, prompt, actions, text, below }) =>
  fill(
    holder,
    h(
      "div",
      { class: "two" },
      controls,
      h(
        "div",
        prompt,
        actions,
        text,
        h(
          "p",
          { class: "soft small", style: { margin: ".4rem 0" } },
          "The more orange a token, the smaller its probability; the prompt is underlined. Point at a token, or choose one with the arrow keys, to see its alternatives; click it to continue from there.",
        ),
        below,
      ),
    ),
  );

const card = (value, label, name) =>
  h("li", { data: { card: name } }, h("b", value), h("span", label));

function perplexity(tokens) {
  const logs = tokens.map(({ log_p }) => log_p).filter((log_p) => log_p !== undefined);
  return logs.length
    ? Math.exp(-logs.reduce((a, b) => a + b, 0) / logs.length).toPrecision(3)
    : "–";
}

// Figures, inspection and samples of the checkpoint that a slider selects.

import { drawFigureWhenVisible } from "../charts.js";
import { button, fill, h, debounce } from "../dom.js";
import { form } from "../forms.js";
import { channel } from "../socket.js";

// Returns an element with update(steps), the steps of the checkpoints, and leave().
export function checkpointViews(name, system) {
  const holder = h("div", { class: "halves figures" });
  const figures = channel();
  let [visible, stale] = [false, false]; // figures are computed only while they are visible, to spare the training run
  const visibility = new IntersectionObserver(([{ isIntersecting }]) => {
    visible = isIntersecting;
    if (visible && stale) refresh();
  });
  const chooser = checkpointSlider(() => refresh());
  const current = () => ({ run: name, step: chooser.step() });
  const inspection = inspectionView(system, current);
  const samples = sampleView(system, current);
  const refresh = debounce(250, async () => {
    if (chooser.isEmpty()) return;
    stale = !visible;
    if (!stale) await drawInto(holder, figures, "views.figures", current());
    inspection.refresh();
    samples.refresh();
  });

  visibility.observe(holder);
  const element = h(
    "div",
    chooser.element,
    h("h3", "Figures"),
    holder,
    inspection.element,
    samples.element,
  );
  element.hidden = true;
  return Object.assign(element, {
    update(steps) {
      element.hidden = !steps.length;
      chooser.update(steps);
    },
    leave() {
      figures.stop();
      inspection.stop();
      samples.stop();
      visibility.disconnect();
    },
  });
}

// A slider over checkpoints; at its end it follows the newest.
function checkpointSlider(change) {
  const slider = h("input", {
    type: "range",
    min: 0,
    max: 0,
    step: 1,
    value: 0,
    id: "checkpoint",
    name: "checkpoint",
    oninput: () => {
      chosen = Number(slider.value) === steps.length - 1 ? null : Number(slider.value);
      showStep();
    },
  });
  const label = h("output", { for: "checkpoint" });
  let steps = [];
  let chosen = null; // index of the checkpoint; null is the newest

  function showStep() {
    label.textContent = steps.length
      ? `checkpoint of step ${steps[chosen ?? steps.length - 1]}${chosen === null ? ", the newest" : ""}`
      : "no checkpoint yet";
    change();
  }

  function update(newSteps) {
    const before = chosen === null ? null : steps[chosen];
    steps = newSteps;
    slider.max = Math.max(0, steps.length - 1);
    chosen = before === null || !steps.includes(before) ? null : steps.indexOf(before);
    slider.value = chosen ?? steps.length - 1;
    slider.disabled = steps.length < 2;
    showStep();
  }

  const element = h(
    "div",
    { class: "slider panel" },
    h("label", { for: "checkpoint" }, "Checkpoint"),
    label,
    slider,
  );
  return {
    element,
    update,
    step: () => (chosen === null ? -1 : steps[chosen]),
    isEmpty: () => !steps.length,
  };
}

function inspectionView(system, current) {
  const inspections = channel();
  const holder = h("div", { class: "halves" });
  const args = form(system.inspect_args, {}, () => {});
  const inspect = () =>
    drawInto(holder, inspections, "views.inspect", { ...current(), args: args.values() });
  const element = h(
    "details",
    h("summary", "Inspect"),
    args,
    button("Show activations", inspect),
    holder,
  );
  const refresh = () => holder.hasChildNodes() && inspect();
  return { element, refresh, stop: inspections.stop };
}

function sampleView(system, current) {
  const sampling = channel();
  const holder = h("div", { role: "status" });
  const number = (name, help) => ({
    name,
    flag: name,
    help,
    kind: "int",
    value: 0,
    low: 0,
    high: null,
    group: "",
  });
  const fields = [
    ...system.sample_args,
    number("count", "number of samples; 0 is the default of the recipe"),
    number("seed", "random seed"),
  ];
  const settings = form(fields, {}, () => {});

  async function sample() {
    const { count, seed, ...args } = settings.values();
    fill(holder, h("p", { class: "soft" }, "…"));
    try {
      const { text, image } = await sampling("views.sample", { ...current(), count, seed, args });
      fill(
        holder,
        image && h("img", { class: "sample", src: image, alt: "samples" }),
        h("pre", text),
      );
    } catch (error) {
      fill(holder, h("p", { class: "error" }, error.message));
    }
  }
  const element = h(
    "details",
    h("summary", "Sample"),
    settings,
    button("Draw samples", sample),
    holder,
  );
  const refresh = () => holder.hasChildNodes() && sample();
  return { element, refresh, stop: sampling.stop };
}

// Request figures and show them as they arrive, in the elements of those before.
async function drawInto(holder, latest, method, params) {
  let i = 0;
  holder.setAttribute("aria-busy", "true");
  try {
    await latest(method, params, (part) => {
      if (part.description !== undefined) {
        holder.dataset.description = part.description;
        return;
      }
      if (!holder.children[i]) holder.append(h("figure", h("h3"), h("figcaption"), h("div")));
      const [title, caption, plot] = holder.children[i].children;
      title.textContent = part.title;
      caption.textContent = part.caption;
      drawFigureWhenVisible(plot, part.plot);
      i += 1;
    });
    while (holder.children.length > i) holder.lastChild.remove();
  } catch (error) {
    fill(holder, h("p", { class: "error" }, error.message));
  }
  holder.removeAttribute("aria-busy");
}

// A slider over the checkpoints, two of them side by side, and a form that forks. All HTML comes escaped from Python.
function element(tag, attributes, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) made.addEventListener(name.slice(2), value);
    else made.setAttribute(name, value);
  }
  made.append(...children);
  return made;
}

function render({ model, el }) {
  // JupyterLab would take the arrow keys for its own.
  const keys = { "data-lm-suppress-shortcuts": "true" };
  const slider = element("input", { type: "range", min: "0", "aria-label": "Checkpoint", class: "sk-slider", ...keys });
  const title = element("output", { class: "sk-at", "aria-live": "polite" });
  const other = element("select", { "aria-label": "Compare with", ...keys });
  const left = element("div", { class: "sk-side" });
  const right = element("div", { class: "sk-side" });
  const edit = element("textarea", { rows: "3", "aria-label": "Edit of the state, as JSON", placeholder: '{"channel": "value"}' });
  const node = element("input", { type: "text", "aria-label": "As node", placeholder: "as node (optional)" });
  const button = element("button", { type: "button" }, "Fork here");
  const told = element("p", { class: "sk-sum", role: "status" });

  function draw() {
    const steps = model.get("steps");
    slider.max = String(Math.max(steps.length - 1, 0));
    slider.value = String(model.get("at"));
    other.replaceChildren(...["what it goes on from", ...steps.map((step) => step.title)].map((name, place) => {
      const option = element("option", { value: String(place - 1) }, name);
      option.selected = place - 1 === model.get("against");
      return option;
    }));
    title.textContent = steps.length ? steps[model.get("at")].title : "no checkpoints";
    left.innerHTML = model.get("state_html");
    right.innerHTML = model.get("diff_html");
    told.textContent = model.get("told");
  }

  function set(name, value) {
    model.set(name, value);
    model.save_changes();
  }

  slider.addEventListener("input", () => set("at", Number(slider.value)));
  other.addEventListener("change", () => set("against", Number(other.value)));
  button.addEventListener("click", () => set("asked", { edit: edit.value, node: node.value, count: Date.now() }));
  for (const name of ["steps", "at", "against", "state_html", "diff_html", "told"]) model.on(`change:${name}`, draw);
  const form = element("details", {}, element("summary", {}, "Fork with an edit"), edit, node, button);
  el.append(element("section", { class: "sk-tt sk-widget", "aria-label": "Time travel" },
    element("div", { class: "sk-move" }, slider, title, element("label", {}, "compared with ", other)),
    element("div", { class: "sk-sides" }, left, right), form, told));
  draw();
  return () => model.off(null, null, draw);
}

export default { render };

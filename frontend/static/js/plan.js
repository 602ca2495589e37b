// Sliders beside number fields: each plan says where they can stand, and moving one writes the field.
// It plans nothing: the field is what counts, and the page asks for the plan of it by itself.
(() => {
  "use strict";

  const sliders = () => document.querySelectorAll("input[type=range][data-field]");
  const values = new Map();

  const say = (slider) => slider.setAttribute("aria-valuetext", values.get(slider.id)[slider.value]);

  // One that is being moved keeps its steps: they must not change under the hand.
  const setUp = (slider) => {
    const steps = document.querySelector(`[data-steps-of="${slider.id}"]`);
    if (steps === null || slider === document.activeElement) return;
    values.set(slider.id, JSON.parse(steps.dataset.values));
    slider.max = String(values.get(slider.id).length - 1);
    slider.value = steps.dataset.at;
    slider.disabled = false;
    slider.hidden = false;
    say(slider);
  };

  const setUpAll = () => sliders().forEach(setUp);

  // Before the page's own question about the form: that one reads the field.
  document.addEventListener(
    "input",
    (event) => {
      if (!values.has(event.target.id)) return;
      document.getElementById(event.target.dataset.field).value = values.get(event.target.id)[event.target.value];
      say(event.target);
    },
    true,
  );
  document.addEventListener("htmx:after:swap", setUpAll);
  document.addEventListener("focusout", (event) => {
    if (values.has(event.target.id)) setTimeout(() => setUp(event.target));
  });
  setUpAll();
})();

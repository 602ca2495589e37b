// A list of buttons is one stop of the Tab key; the arrow keys, Home and End go on from there.
// It gives no order, and without it every button is a stop of its own.
(() => {
  "use strict";

  const STEP = { ArrowDown: 1, ArrowUp: -1 };
  const buttonsOf = (list) => [...list.querySelectorAll(list.dataset.oneStop)];

  // The stop is the button that has the focus, else the first one; written anew after every morph.
  const settle = () => {
    for (const list of document.querySelectorAll("[data-one-stop]")) {
      const buttons = buttonsOf(list);
      const stop = buttons.includes(document.activeElement) ? document.activeElement : buttons[0];
      for (const button of buttons) button.tabIndex = button === stop ? 0 : -1;
    }
  };

  document.addEventListener("keydown", (event) => {
    const list = event.target.closest?.("[data-one-stop]");
    if (!list || event.altKey || event.ctrlKey || event.metaKey) return;
    const buttons = buttonsOf(list);
    const here = buttons.indexOf(event.target);
    if (here < 0) return;
    const last = buttons.length - 1;
    const to = { Home: 0, End: last }[event.key] ?? Math.min(Math.max(here + (STEP[event.key] ?? NaN), 0), last);
    if (Number.isNaN(to)) return;
    event.preventDefault();
    buttons[to].focus();
    settle();
  });

  document.addEventListener("focusin", settle);
  document.addEventListener("htmx:after:swap", settle);
  settle();
})();

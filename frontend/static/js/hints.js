// The sentence behind a word or a number: shown in one box above everything, so that no edge and no panel cuts it off.
// It writes no sentences: each comes with the page, as data-hint.
(() => {
  "use strict";

  const GAP_PX = 6;
  const box = document.getElementById("hint");
  let word = null;

  const hide = () => {
    if (word === null) return;
    word = null;
    box.hidePopover();
  };

  const place = () => {
    const at = word.getBoundingClientRect();
    const size = box.getBoundingClientRect();
    const room = document.documentElement.clientWidth - size.width - GAP_PX;
    const below = at.bottom + GAP_PX;
    const isTooLow = below + size.height > innerHeight && at.top - GAP_PX - size.height > 0;
    box.style.left = `${Math.max(GAP_PX, Math.min(at.left, room))}px`;
    box.style.top = `${isTooLow ? at.top - GAP_PX - size.height : below}px`;
  };

  const show = (target) => {
    hide();
    word = target;
    box.textContent = word.dataset.hint;
    box.showPopover();
    place();
  };

  const hintOf = (event) => (event.target instanceof Element ? event.target.closest("[data-hint]") : null);

  document.addEventListener("mouseover", (event) => {
    const target = hintOf(event);
    if (target !== null && target !== word) show(target);
  });
  document.addEventListener("mouseout", (event) => {
    if (hintOf(event) === word && !word?.contains(event.relatedTarget)) hide();
  });
  document.addEventListener("focusin", (event) => {
    const target = hintOf(event);
    if (target !== null) show(target);
    else hide();
  });
  document.addEventListener("focusout", hide);
  const stay = () => {
    if (word !== null) place();
  };
  document.addEventListener("scroll", stay, { capture: true, passive: true });
  addEventListener("resize", stay);

  // The page is morphed once a second under an open hint.
  document.addEventListener("htmx:after:swap", () => {
    if (word === null) return;
    if (!word.isConnected || word.dataset.hint === undefined) hide();
    else {
      box.textContent = word.dataset.hint;
      place();
    }
  });

  const STEP = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
  document.addEventListener("keydown", (event) => {
    if (event.key === "Escape") hide();
    const here = document.activeElement;
    const section = here?.matches("[data-hint]") ? here.closest("section") : null;
    if (section === null || STEP[event.key] === undefined || event.altKey || event.ctrlKey || event.metaKey) return;
    const words = [...section.querySelectorAll("[data-hint]")].filter((each) => each.offsetParent !== null);
    event.preventDefault();
    words[(words.indexOf(here) + STEP[event.key] + words.length) % words.length].focus();
  });
})();

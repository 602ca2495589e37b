// New lines are not put in while a person reads: below the newest, or with a piece of text marked.
// It asks for nothing itself: the page's own question every two seconds is let through or not.
(() => {
  "use strict";

  const lines = document.getElementById("log-lines");
  const state = document.getElementById("log-state");
  if (!lines.hasAttribute("hx-get")) return;
  let isPaused = false;

  const isMarked = () => {
    const marked = getSelection();
    return !marked.isCollapsed && lines.contains(marked.anchorNode);
  };

  // The bar above the lines sticks to the top: its height is no reason to think that somebody has scrolled.
  const isBelow = () => lines.getBoundingClientRect().top < state.getBoundingClientRect().bottom - 1;

  const look = () => {
    const wasPaused = isPaused;
    isPaused = isBelow() || isMarked();
    if (wasPaused === isPaused) return;
    state.querySelector(".following").hidden = isPaused;
    state.querySelectorAll(".paused").forEach((each) => (each.hidden = !isPaused));
    if (!isPaused) htmx.trigger(lines, "refresh");
  };

  document.addEventListener("htmx:config:request", (event) => {
    if (isPaused && event.target === lines) event.preventDefault();
  });
  addEventListener("scroll", look, { passive: true });
  document.addEventListener("selectionchange", look);
  look();
})();

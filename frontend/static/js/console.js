// What the page does beyond asking again: it rests while hidden, says when the console is lost, and copies.
// It decides nothing about the system: everything shown comes from the server.
(() => {
  "use strict";

  const POLLERS = "[hx-trigger*='refresh']";
  // While the console is lost, one question in this many seconds is enough.
  const LOST_EVERY_MS = 5000;

  let lastAnswerMs = performance.now();
  let lastTryMs = 0;
  let isLost = false;

  const refreshAll = () => document.querySelectorAll(POLLERS).forEach((poller) => htmx.trigger(poller, "refresh"));
  const isOver = () => document.querySelector("[data-over]") !== null;

  // htmx 4 does not look at visibility, and its trigger conditions need eval, which our policy forbids.
  document.addEventListener("htmx:config:request", (event) => {
    const now = performance.now();
    const rests = isLost && now - lastTryMs < LOST_EVERY_MS;
    if (document.hidden || rests || isOver()) {
      event.preventDefault();
    } else {
      lastTryMs = now;
    }
  });

  document.addEventListener("visibilitychange", () => {
    if (!document.hidden && !isOver()) {
      lastTryMs = -LOST_EVERY_MS;
      refreshAll();
    }
  });

  const showLost = () => {
    const banner = document.getElementById("lost");
    if (banner === null || isOver()) return;
    banner.hidden = !isLost;
    document.body.classList.toggle("is-lost", isLost);
    const age = document.getElementById("lost-age");
    if (isLost) age.textContent = `${Math.round((performance.now() - lastAnswerMs) / 1000)} ${age.dataset.unit}`;
  };

  document.addEventListener("htmx:after:request", () => {
    lastAnswerMs = performance.now();
    isLost = false;
    showLost();
  });

  document.addEventListener("htmx:error", () => {
    isLost = true;
    showLost();
  });

  setInterval(() => {
    if (isLost) showLost();
  }, 1000);

  // navigator.clipboard exists on https and loopback only: elsewhere the text is selected for the person to copy.
  const copy = async (button) => {
    const code = button.parentElement.querySelector("code");
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = button.dataset.done;
    } catch {
      getSelection().selectAllChildren(code);
    }
  };

  document.addEventListener("click", (event) => {
    const button = event.target.closest("button.copy");
    if (button !== null) copy(button);
  });

  const showCopyButtons = () => document.querySelectorAll("button.copy[hidden]").forEach((button) => (button.hidden = false));
  document.addEventListener("htmx:after:swap", showCopyButtons);
  showCopyButtons();
})();

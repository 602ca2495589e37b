// What the page does beyond asking again: it rests while hidden, says when the console is lost, copies, puts the focus
// where a panel begins, and forgets at the log-out.
// It decides nothing about the system: everything shown comes from the server.
(() => {
  "use strict";

  const POLLERS = "[hx-trigger*='refresh']";
  // While the console is lost, one question in this many seconds is enough.
  const LOST_EVERY_MS = 5000;

  // The server writes times; only the browser knows in which zone. Written anew where it differs, and only once.
  const root = document.documentElement;
  const zone = `${root.dataset.zoneCookie}=${encodeURIComponent(Intl.DateTimeFormat().resolvedOptions().timeZone)}`;
  if (root.dataset.zoneCookie && !document.cookie.split("; ").includes(zone)) {
    document.cookie = `${zone}; path=/; max-age=31536000; SameSite=Strict`;
    const isOther = Number(root.dataset.utcOffsetMin) !== -new Date().getTimezoneOffset();
    if (isOther && document.cookie.split("; ").includes(zone)) location.reload();
  }

  // On a narrow screen the pages scroll sideways: the present one is in sight. The page itself must not scroll.
  const present = document.querySelector(".masthead nav [aria-current]");
  if (present !== null) {
    const pages = present.parentElement;
    pages.scrollLeft = present.offsetLeft - pages.offsetLeft - (pages.clientWidth - present.offsetWidth) / 2;
  }

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
    if (!isLost) document.getElementById("lost-order").hidden = true;
    document.body.classList.toggle("is-lost", isLost);
    const age = document.getElementById("lost-age");
    if (!isLost) return;
    age.textContent = `${Math.round((performance.now() - lastAnswerMs) / 1000)} ${age.dataset.unit}`;
    showStateLost(document.getElementById("state"));
  };

  // The place that everybody looks at must not stay green; the next answer puts the state back.
  const showStateLost = (state) => {
    const mark = state.querySelector(".mark");
    mark.className = "mark tone-bad";
    mark.dataset.hint = state.dataset.lostHint;
    mark.setAttribute("aria-description", state.dataset.lostHint);
    mark.querySelector(".sign").textContent = "✕";
    setText(state.querySelector("#state-word"), state.dataset.lost);
    setText(state.querySelector(".state-detail"), "");
  };

  // Written once only: a screen reader says again what is written again.
  const setText = (element, text) => {
    if (element.textContent !== text) element.textContent = text;
  };

  document.addEventListener("htmx:after:request", () => {
    lastAnswerMs = performance.now();
    if (!isLost) return;
    isLost = false;
    showLost();
    refreshAll();
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

  // Panels open by themselves, without us; the browser gives the focus back when they close.
  document.addEventListener(
    "toggle",
    (event) => {
      if (event.newState === "open") event.target.querySelector("[data-first]")?.focus();
    },
    true,
  );

  // A form sent to a console that has ended would end this page, too, and what was typed with it.
  document.addEventListener(
    "submit",
    (event) => {
      if (!isLost) return;
      event.preventDefault();
      event.stopImmediatePropagation();
      document.getElementById("lost-order").hidden = false;
      // A panel lies above the banner that says why nothing happens.
      document.querySelectorAll(".sheet:popover-open").forEach((sheet) => sheet.hidePopover());
    },
    true,
  );

  // An order takes a moment, and a second click would give it twice.
  const sent = new WeakSet();
  document.addEventListener("submit", (event) => {
    if (sent.has(event.target)) event.preventDefault();
    sent.add(event.target);
    // The conversation of the page Try it is this session's.
    if (event.target.action === `${location.origin}/logout`) sessionStorage.clear();
  });
  addEventListener("pageshow", (event) => {
    if (event.persisted) location.reload();
  });

  // A page that answers a form stands at the form's address: its reload must not give the order again.
  const answer = document.querySelector("[data-address]");
  if (answer !== null) history.replaceState(null, "", answer.dataset.address);

  // A form that comes back with something wrong is shown at once.
  document.querySelector("[popover][data-open]")?.showPopover();

  const showCopyButtons = () => document.querySelectorAll("button.copy[hidden]").forEach((button) => (button.hidden = false));
  document.addEventListener("htmx:after:swap", showCopyButtons);
  showCopyButtons();
})();

// The page Try it: the conversation, which lives in this tab and nowhere else, and the answer that is being written.
// Everything that came from a person or a model becomes text nodes, never markup; sentences come from the server.
(() => {
  "use strict";

  const byId = (id) => document.getElementById(id);
  const talk = byId("talk");
  const [turns, question, send, stop, fresh] = ["turns", "question", "talk-send", "talk-stop", "talk-new"].map(byId);
  // Closer to its end than this, a person reads along, and the view follows.
  const FOLLOW_PX = 40;

  // Where this tab keeps the conversation while other pages are shown. console.js empties it at the log-out.
  const PLACE = "splash-conversation";
  const FIELDS = ["system", "temperature", "max-tokens", "question"];

  // Each question with what was answered: {question, thought, words, end, hasFailed}.
  let exchanges = [];
  let running = null;
  let isLoggedOut = false;
  // A browser breaks an answer off before it says that the page is hidden, but after it asked whether it may go.
  let isLeaving = false;

  // Of another session: another person may sit here now.
  const kept = () => {
    const found = JSON.parse(sessionStorage.getItem(PLACE) ?? "null");
    return found?.session === talk.dataset.formToken ? found : null;
  };

  const keep = () => {
    if (isLoggedOut) return;
    const fields = Object.fromEntries(FIELDS.map((id) => [id, byId(id).value]));
    try {
      sessionStorage.setItem(PLACE, JSON.stringify({ session: talk.dataset.formToken, exchanges, fields }));
    } catch {
      // Larger than a tab may keep: rather nothing than an older state of it.
      sessionStorage.removeItem(PLACE);
    }
  };

  // What stands between two lines of ``` is code. `pieces` are [is code, text] in order; the last one may still grow.
  const pieces = (text) => {
    const parts = text.split(/^```.*(?:\n|$)/m);
    // A block of code begins on its own line: the line breaks before it would only be a gap.
    return parts.map((part, at) => [at % 2 === 1, at < parts.length - 1 ? part.replace(/\n+$/, "") : part]);
  };

  // Only the last piece changes while an answer is written: what stands before it is left alone.
  class Words {
    constructor(place) {
      this.place = place;
      this.text = "";
      this.isDue = false;
    }

    add(text) {
      this.text += text;
      if (this.isDue) return;
      this.isDue = true;
      requestAnimationFrame(() => this.show());
    }

    show() {
      this.isDue = false;
      const isRead = turns.scrollHeight - turns.scrollTop - turns.clientHeight < FOLLOW_PX;
      const found = pieces(this.text);
      const from = Math.max(this.place.childNodes.length - 1, 0);
      found.slice(from).forEach(([isCode, text], offset) => {
        const node = this.place.childNodes[from + offset] ?? this.place.appendChild(isCode ? codeBlock() : new Text());
        (isCode ? node.firstChild : node).textContent = text;
      });
      if (isRead) turns.scrollTop = turns.scrollHeight;
    }
  }

  // What stands between backticks in a sentence is something to type, as on every page (webui.render).
  const spoken = (sentence) =>
    sentence.split(/`([^`]+)`/).map((part, at) => {
      if (at % 2 === 0) return part;
      const code = document.createElement("code");
      code.textContent = part;
      return code;
    });

  const codeBlock = () => {
    const block = document.createElement("pre");
    block.tabIndex = 0;
    block.append(document.createElement("code"));
    return block;
  };

  const addTurn = (template) => {
    const turn = byId(template).content.cloneNode(true).firstElementChild;
    turns.append(turn);
    turns.scrollTop = turns.scrollHeight;
    return turn;
  };

  const say = (phase, numbers = "") => {
    // A screen reader says again what is written again.
    if (byId("talk-phase").textContent !== phase) byId("talk-phase").textContent = phase;
    byId("talk-numbers").textContent = numbers;
  };

  const setRunning = (answer) => {
    running = answer;
    send.disabled = answer !== null;
    stop.disabled = answer === null;
    fresh.disabled = exchanges.length === 0;
  };

  const number = (id) => (byId(id).value === "" ? null : Number(byId(id).value));

  const body = () => {
    const system = byId("system").value.trim();
    const first = system ? [{ role: "system", content: system }] : [];
    // What was not answered at all is not sent again, but for the last question: that is asked now.
    const messages = exchanges.flatMap(({ question, words }, at) => [
      ...(words || at === exchanges.length - 1 ? [{ role: "user", content: question }] : []),
      ...(words ? [{ role: "assistant", content: words }] : []),
    ]);
    const limits = { temperature: number("temperature"), max_tokens: number("max-tokens") };
    return JSON.stringify({ messages: [...first, ...messages], ...limits });
  };

  // Frames of the stream, one after the other; the last one may arrive in parts.
  async function* framesOf(response) {
    const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
    let rest = "";
    for (;;) {
      const { done, value } = await reader.read();
      if (done) return;
      const whole = (rest + value).split("\n\n");
      rest = whole.pop();
      for (const text of whole) {
        const [event, data] = text.split("\ndata: ");
        yield [event.replace("event: ", ""), JSON.parse(data)];
      }
    }
  }

  class Answer {
    constructor() {
      this.turn = addTurn("answer-turn");
      this.thought = new Words(this.turn.querySelector(".thought .words"));
      this.words = new Words(this.turn.querySelector(":scope > .words"));
      this.control = new AbortController();
      this.isStopped = false;
      this.endWords = "";
    }

    get state() {
      const said = { thought: this.thought.text, words: this.words.text, end: this.endWords };
      return { ...said, hasFailed: this.hasFailed === true };
    }

    /** As it was when the page was left. */
    restore({ thought, words, end, hasFailed }) {
      if (thought) this.happened("thought", { text: thought });
      if (words) this.words.add(words);
      if (hasFailed) this.fail(end);
      else this.end("", end);
    }

    stop() {
      this.isStopped = true;
      this.control.abort();
    }

    async run() {
      const headers = { "Content-Type": "application/json", "X-Form-Token": talk.dataset.formToken };
      const sent = { method: "POST", headers, body: body(), signal: this.control.signal };
      const response = await fetch("/playground/chat", sent);
      if (response.status === 401) location.reload();
      if (!response.ok) return this.fail((await response.json()).words);
      for await (const [event, data] of framesOf(response)) this.happened(event, data);
    }

    happened(event, data) {
      if (event === "text") this.words.add(data.text);
      if (event === "thought") {
        this.turn.querySelector(".thought").hidden = false;
        this.thought.add(data.text);
      }
      if (event === "state") say(data.phase, data.numbers);
      if (event === "end") this.end(data.phase, data.numbers);
      if (event === "problem") this.fail(data.words);
    }

    end(phase, numbers = "") {
      this.isOver = true;
      say(phase);
      this.endWords = numbers || phase;
      this.turn.querySelector(".turn-end").textContent = this.endWords;
      this.turn.querySelector(".turn-end").title = byId("talk-numbers").title;
    }

    fail(words) {
      this.end("");
      const end = this.turn.querySelector(".turn-end");
      end.replaceChildren("✕ ", ...spoken(words));
      this.endWords = words;
      end.setAttribute("role", "alert");
      end.classList.add("tone-bad");
      this.hasFailed = true;
    }

    /** Nothing more comes, and nobody said why. */
    breakOff() {
      if (this.isStopped) this.end(talk.dataset.stopped);
      else if (isLeaving) this.end(talk.dataset.left);
      else this.fail(talk.dataset.brokeOff);
    }
  }

  const ask = async (text) => {
    const exchange = { question: text };
    exchanges.push(exchange);
    const answer = show(exchange);
    setRunning(answer);
    isLeaving = false;
    say(talk.dataset.sent);
    try {
      await answer.run();
      if (!answer.isOver) answer.breakOff();
    } catch {
      answer.breakOff();
    }
    if (running !== answer) return;
    Object.assign(exchange, answer.state);
    // What was not answered at all can be sent again as it is.
    if (answer.hasFailed && !answer.words.text && question.value === "") question.value = text;
    setRunning(null);
    keep();
  };

  const show = (exchange) => {
    byId("talk-empty").hidden = true;
    new Words(addTurn("question-turn").querySelector(".words")).add(exchange.question);
    return new Answer();
  };

  byId("ask").addEventListener("submit", (event) => {
    event.preventDefault();
    const text = question.value.trim();
    if (running !== null || !text || !byId("talk-values").reportValidity()) return;
    question.value = "";
    ask(text);
  });

  question.addEventListener("keydown", (event) => {
    // While a Chinese word is being composed, Enter chooses it.
    if (event.key !== "Enter" || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    byId("ask").requestSubmit();
  });

  byId("talk-values").addEventListener("submit", (event) => event.preventDefault());
  stop.addEventListener("click", () => {
    running?.stop();
    question.focus();
  });
  fresh.addEventListener("click", () => {
    const answer = running;
    exchanges = [];
    setRunning(null);
    answer?.stop();
    turns.querySelectorAll(".turn").forEach((turn) => turn.remove());
    byId("talk-empty").hidden = false;
    say("");
    question.focus();
    keep();
  });

  addEventListener("beforeunload", () => (isLeaving = true));
  addEventListener("pagehide", () => {
    isLeaving = true;
    if (running !== null) Object.assign(exchanges.at(-1), running.state, { end: talk.dataset.left });
    keep();
  });
  document.querySelector("form[action='/logout']").addEventListener("submit", () => (isLoggedOut = true));

  const before = kept();
  exchanges = before?.exchanges ?? [];
  for (const [id, value] of Object.entries(before?.fields ?? {})) byId(id).value = value;
  for (const exchange of exchanges) show(exchange).restore(exchange);
  setRunning(null);
})();

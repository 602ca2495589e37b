// The page Try it: the conversation, which lives here and nowhere else, and the answer that is being written.
// Everything that came from a person or a model becomes text nodes, never markup; sentences come from the server.
(() => {
  "use strict";

  const byId = (id) => document.getElementById(id);
  const talk = byId("talk");
  const [turns, question, send, stop, fresh] = ["turns", "question", "talk-send", "talk-stop", "talk-new"].map(byId);
  // Closer to its end than this, a person reads along, and the view follows.
  const FOLLOW_PX = 40;

  let messages = [];
  let running = null;

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
    fresh.disabled = messages.length === 0 && answer === null;
  };

  const number = (id) => (byId(id).value === "" ? null : Number(byId(id).value));

  const body = () => {
    const system = byId("system").value.trim();
    const first = system ? [{ role: "system", content: system }] : [];
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
      this.turn.querySelector(".turn-end").textContent = numbers || phase;
      this.turn.querySelector(".turn-end").title = byId("talk-numbers").title;
    }

    fail(words) {
      this.end("");
      const end = this.turn.querySelector(".turn-end");
      end.textContent = `✕ ${words}`;
      end.setAttribute("role", "alert");
      end.classList.add("tone-bad");
      this.hasFailed = true;
    }
  }

  const ask = async (text) => {
    byId("talk-empty").hidden = true;
    messages.push({ role: "user", content: text });
    new Words(addTurn("question-turn").querySelector(".words")).add(text);
    const answer = new Answer();
    setRunning(answer);
    say(talk.dataset.sent);
    try {
      await answer.run();
      if (!answer.isOver) answer.fail(talk.dataset.brokeOff);
    } catch {
      if (answer.isStopped) answer.end(talk.dataset.stopped);
      else answer.fail(talk.dataset.brokeOff);
    }
    if (running !== answer) return;
    // What was not answered at all can be sent again as it is.
    if (answer.words.text) messages.push({ role: "assistant", content: answer.words.text });
    else messages.pop();
    if (answer.hasFailed && !answer.words.text && question.value === "") question.value = text;
    setRunning(null);
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
    messages = [];
    setRunning(null);
    answer?.stop();
    turns.querySelectorAll(".turn").forEach((turn) => turn.remove());
    byId("talk-empty").hidden = false;
    say("");
    question.focus();
  });

  setRunning(null);
})();

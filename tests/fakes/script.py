"""The script of the fake engine: what it answers to which message, step by step, with every default filled in.

It plays nothing (`tests.fakes.scripted_worker`) and serves nothing (`tests/fakes/engine.py`).

A script is a JSON list. An entry without `match` is about the start, any of {"slow_load_ms": 3000,
"cache_off": "why", "failed_tests": {"restore": "why"}}; every other entry is a rule:

    {"match": "think", "steps": [STEP, ...]}

The first rule whose `match` is part of the last user message (or of the text prompt) is played. A step is one of
    {"event": {...}, "after_ms": 20}      an event of engine.wire, without "accepted"; "finished" and "failed" get usage
                                          and timings when they bring none
    {"prefill": {"total": 60000, "cached": 1000, "duration_ms": 5000}}    progress four times a second; `total` is also
                                          the length of the prompt, for /count too
    {"tokens": {"text": "...", "per_second": 50, "kind": "text"}}         one word a token; "reasoning" is a thought
    {"stall_ms": 10000}                   nothing happens
    {"die": 70}, {"die": "kill"}          the process ends at once, with that exit code or by SIGKILL
    {"fail": {"code": "internal", "message": "...", "retryable": true}}
A rule that ends without an end finishes with "stop", or with "tool_calls" if it made any. Where no rule matches, the
message is echoed as text. `max_tokens` ends every answer; a token is a word of text, of a thought or of arguments.
"""

import re
from pathlib import Path
from typing import Any, Literal

import msgspec

from engine.wire import AnyEvent, ErrorCode, Prompt

_WORD = re.compile(r"\s*\S+|\s+$")
_TOKENS_PER_MESSAGE = 4  # what a chat template adds around a message


class Prefill(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    total: int | None = None
    cached: int = 0
    duration_ms: float = 0.0


class Tokens(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: str
    per_second: float = 1000.0
    kind: Literal["text", "reasoning"] = "text"


class Failure(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    code: ErrorCode = "internal"
    message: str = "the script says so"
    retryable: bool = False


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Exactly one field is set, beside `after_ms`."""

    event: AnyEvent | None = None
    after_ms: float = 0.0
    prefill: Prefill | None = None
    tokens: Tokens | None = None
    stall_ms: float | None = None
    die: int | Literal["kill"] | None = None
    fail: Failure | None = None


class Rule(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    match: str
    steps: tuple[Step, ...]


class Start(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`cache_off`: why there is no prefix cache; empty when there is one. `failed_tests`: details by name."""

    slow_load_ms: float = 0.0
    cache_off: str = ""
    failed_tests: dict[str, str] = {}


class Script:
    def __init__(self, rules: tuple[Rule, ...] = (), start: Start | None = None) -> None:
        self.start = start or Start()
        self._rules = rules

    @classmethod
    def read(cls, file: Path | None) -> "Script":
        """Raises msgspec.ValidationError for a script that is none."""
        if file is None:
            return cls()
        entries: list[dict[str, Any]] = msgspec.json.decode(file.read_bytes(), type=list[dict[str, Any]])
        starts = [entry for entry in entries if "match" not in entry]
        rules = [entry for entry in entries if "match" in entry]
        return cls(
            msgspec.convert(rules, tuple[Rule, ...]),
            msgspec.convert(starts[0], Start) if starts else None,
        )

    def steps(self, prompt: Prompt) -> tuple[Step, ...]:
        said = last_said(prompt)
        for rule in self._rules:
            if rule.match in said:
                return rule.steps
        return (Step(prefill=Prefill()), Step(tokens=Tokens(text=said)))

    def num_prompt_tokens(self, prompt: Prompt) -> int:
        """What the rule says, else one token a word."""
        for step in self.steps(prompt):
            if step.prefill is not None and step.prefill.total is not None:
                return step.prefill.total
        return num_words(prompt)


def words(text: str) -> list[str]:
    return _WORD.findall(text)


def num_words(prompt: Prompt) -> int:
    if prompt.tokens is not None:
        return len(prompt.tokens)
    if prompt.text is not None:
        return max(1, len(words(prompt.text)))
    texts = [part.text for message in prompt.messages or () for part in message.content]
    return sum(_TOKENS_PER_MESSAGE + len(words(text)) for text in texts)


def last_said(prompt: Prompt) -> str:
    """The last user message, or the text prompt; a prompt of tokens says nothing."""
    if prompt.text is not None:
        return prompt.text
    said = [message for message in prompt.messages or () if message.role == "user"]
    return "\n".join(part.text for part in said[-1].content) if said else ""

"""A state machine that every stream of /v1/responses must pass: what the strictest of its consumers needs.

It knows no request and no engine. Source: notes on OpenAI's SDKs (Python 3.57, Node 6.49), ai-sdk and Codex 0.171.
"""

import json
from dataclasses import dataclass, field
from typing import Any

TERMINAL = {
    "response.completed": "completed",
    "response.incomplete": "incomplete",
    "response.failed": "failed",
}
# Codex shows these as "at capacity" and does not send the request again.
FORBIDDEN_CODES = {"server_is_overloaded", "slow_down"}
RESPONSE_FIELDS = {
    "id",
    "object",
    "created_at",
    "status",
    "error",
    "incomplete_details",
    "model",
    "output",
    "usage",
    "instructions",
    "metadata",
    "parallel_tool_calls",
    "previous_response_id",
    "reasoning",
    "store",
    "temperature",
    "text",
    "tool_choice",
    "tools",
    "top_p",
    "truncation",
}


@dataclass
class Frame:
    """A comment has no event."""

    event: dict[str, Any] | None


def frames_of(data: bytes) -> list[Frame]:
    """Every block is a comment, or an `event:` line and a `data:` line; nothing is left over."""
    text = data.decode()
    assert not text or text.endswith("\n\n"), "the stream ends within a frame"
    frames = []
    for block in text.split("\n\n")[:-1]:
        lines = block.split("\n")
        if lines[0].startswith(":"):
            assert len(lines) == 1
            frames.append(Frame(None))
            continue
        assert len(lines) == 2 and lines[0].startswith("event: ") and lines[1].startswith("data: "), lines
        event = json.loads(lines[1].removeprefix("data: "))
        assert event["type"] == lines[0].removeprefix("event: ")
        frames.append(Frame(event))
    return frames


def events_of(data: bytes) -> list[dict[str, Any]]:
    return [frame.event for frame in frames_of(data) if frame.event is not None]


def check(data: bytes, *, is_over: bool = True) -> "Checker":
    """Raises AssertionError on the first thing that a consumer could stumble over."""
    checker = Checker()
    for frame in frames_of(data):
        checker.take(frame)
    assert not is_over or checker.terminal is not None, "no terminal event"
    return checker


@dataclass
class Item:
    """`path` is what was told in this item so far, and `joined` the deltas together."""

    kind: str
    id: str
    added: dict[str, Any]
    path: list[str] = field(default_factory=list)
    joined: str = ""
    logprobs: list[Any] = field(default_factory=list)
    done: dict[str, Any] | None = None


# Of each type of item: the events between added and done, in order. The starred one may come any number of times.
ORDERS = {
    "message": ("content_part.added", "output_text.delta*", "output_text.done", "content_part.done"),
    "reasoning": (
        "reasoning_summary_part.added",
        "reasoning_summary_text.delta*",
        "reasoning_summary_text.done",
        "reasoning_summary_part.done",
    ),
    "function_call": ("function_call_arguments.delta*", "function_call_arguments.done"),
    "custom_tool_call": ("custom_tool_call_input.delta*", "custom_tool_call_input.done"),
}
PREFIXES = {"message": "msg_", "reasoning": "rs_", "function_call": "fc_", "custom_tool_call": "ctc_"}


class Checker:
    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.num_comments = 0
        self.items: list[Item] = []
        self.created: dict[str, Any] | None = None
        self.terminal: dict[str, Any] | None = None
        self._is_in_progress = False

    @property
    def types(self) -> list[str]:
        return [event["type"].removeprefix("response.") for event in self.events]

    @property
    def output(self) -> list[dict[str, Any]]:
        return [item.done for item in self.items if item.done is not None]

    def take(self, frame: Frame) -> None:
        assert self.terminal is None, "something follows the terminal event"
        event = frame.event
        if event is None:
            self.num_comments += 1
            return
        assert event["sequence_number"] == len(self.events), "a sequence number is missing or comes twice"
        self.events.append(event)
        kind = event["type"]
        if self.created is None:
            assert kind == "response.created", f"{kind} comes before response.created"
            self._check_created(event)
        elif not self._is_in_progress:
            assert kind == "response.in_progress", f"{kind} comes before response.in_progress"
            self._is_in_progress = True
            self._check_response(event, "in_progress")
        elif kind == "keepalive":
            assert event.keys() == {"type", "sequence_number"}
        elif kind == "response.in_progress":
            assert not self.items, "openai-node fails on an in_progress after an item"
            self._check_response(event, "in_progress")
        elif kind in TERMINAL:
            self._check_terminal(event)
        else:
            self._check_item_event(event)

    # --- The response ---

    def _check_created(self, event: dict[str, Any]) -> None:
        self.created = event["response"]
        self._check_response(event, "in_progress")

    def _check_response(self, event: dict[str, Any], status: str) -> None:
        response = event["response"]
        assert self.created is not None
        assert response.keys() >= RESPONSE_FIELDS, RESPONSE_FIELDS - response.keys()
        assert response["object"] == "response" and response["id"].startswith("resp_")
        assert (response["id"], response["created_at"]) == (self.created["id"], self.created["created_at"])
        assert response["status"] == status
        assert isinstance(response["model"], str) and response["model"]
        assert isinstance(response["created_at"], int)
        if status == "in_progress":
            assert response["output"] == [] and response["usage"] is None and response["error"] is None

    def _check_terminal(self, event: dict[str, Any]) -> None:
        status = TERMINAL[event["type"]]
        self._check_response(event, status)
        self.terminal = response = event["response"]
        assert response["output"] == self.output, "the output is not what was streamed"
        if status == "failed":
            error = response["error"]
            assert isinstance(error["code"], str) and isinstance(error["message"], str)
            assert error["code"] not in FORBIDDEN_CODES
            return
        assert response["error"] is None
        assert all(item.done is not None for item in self.items), "an item was not finished"
        reason = {"reason": "max_output_tokens"} if status == "incomplete" else None
        assert response["incomplete_details"] == reason
        check_usage(response["usage"])

    # --- Its items ---

    def _check_item_event(self, event: dict[str, Any]) -> None:
        name = event["type"].removeprefix("response.")
        if name == "output_item.added":
            self._check_added(event)
            return
        item = self.items[event["output_index"]]
        assert item.done is None, f"{name} comes after the item was done"
        if name == "output_item.done":
            self._check_done(item, event["item"])
            return
        assert event["item_id"] == item.id, "the item's id changed"
        self._check_place(item, name)
        item.path.append(name)
        self._check_content(item, name, event)

    def _check_added(self, event: dict[str, Any]) -> None:
        added = event["item"]
        assert event["output_index"] == len(self.items), "output indexes have a gap"
        kind = added["type"]
        assert added["id"].startswith(PREFIXES[kind])
        assert added["id"] not in {item.id for item in self.items}
        assert added["status"] == "in_progress"
        match kind:
            case "message":
                assert added["content"] == [] and added["role"] == "assistant"
            case "reasoning":
                assert added["summary"] == []
            case "function_call":
                assert added["arguments"] == "" and added["call_id"] and added["name"]
            case "custom_tool_call":
                assert added["input"] == "" and added["call_id"] and added["name"]
        if kind in ("message", "reasoning"):
            assert all(item.done for item in self.items if item.kind in ("message", "reasoning"))
        self.items.append(Item(kind, added["id"], added))

    def _check_place(self, item: Item, name: str) -> None:
        """`name` is allowed after what this item had so far."""
        order = [step.removesuffix("*") for step in ORDERS[item.kind]]
        assert name in order, f"{name} in an item of type {item.kind}"
        fixed = [step for step in ORDERS[item.kind] if not step.endswith("*")]
        seen = [step for step in item.path if step in fixed]
        if name in fixed:
            assert name == fixed[len(seen)], f"{name} is out of order"
            return
        before = [step for step in order[: order.index(name)] if step in fixed]
        assert seen == before, f"{name} is out of order"

    def _check_content(self, item: Item, name: str, event: dict[str, Any]) -> None:
        if item.kind == "message":
            assert event["content_index"] == 0
        if item.kind == "reasoning":
            assert event["summary_index"] == 0
        if name.endswith(".delta"):
            assert isinstance(event["delta"], str)
            item.joined += event["delta"]
            if item.kind == "message":
                item.logprobs += event["logprobs"]
            return
        match name:
            case "content_part.added":
                assert event["part"] == {"type": "output_text", "text": "", "annotations": [], "logprobs": []}
            case "reasoning_summary_part.added":
                assert event["part"] == {"type": "summary_text", "text": ""}
            case "output_text.done":
                assert (event["text"], event["logprobs"]) == (item.joined, item.logprobs)
            case "reasoning_summary_text.done":
                assert event["text"] == item.joined
            case "content_part.done" | "reasoning_summary_part.done":
                assert event["part"]["text"] == item.joined
            case "function_call_arguments.done":
                assert (event["arguments"], event["name"]) == (item.joined, item.added["name"])
            case "custom_tool_call_input.done":
                assert event["input"] == item.joined

    def _check_done(self, item: Item, done: dict[str, Any]) -> None:
        fixed = [step for step in ORDERS[item.kind] if not step.endswith("*")]
        assert [step for step in item.path if step in fixed] == fixed, "the item's content is not finished"
        content = {"message": "content", "reasoning": "summary", "function_call": "arguments"}.get(item.kind, "input")
        assert {**done, content: None, "status": None} == {**item.added, content: None, "status": None}
        assert done["status"] in ("completed", "incomplete")
        match item.kind:
            case "message":
                [part] = done["content"]
                assert (part["type"], part["text"], part["logprobs"]) == ("output_text", item.joined, item.logprobs)
            case "reasoning":
                assert done["summary"] == [{"type": "summary_text", "text": item.joined}]
            case _:
                assert done[content] == item.joined
        if item.kind == "function_call" and done["status"] == "completed":
            json.loads(done["arguments"])
        item.done = done


def check_usage(usage: dict[str, Any]) -> None:
    assert usage["input_tokens_details"]["cached_tokens"] <= usage["input_tokens"]
    assert usage["output_tokens_details"]["reasoning_tokens"] <= usage["output_tokens"]
    assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]

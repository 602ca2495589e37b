"""The kinds of output item of a Responses answer: each from its beginning to its end, and the events on the way.

It does not decide when an item begins (`responses_output`).

Format, per item: output_item.added, then what its type has, then output_item.done with the whole item. Reasoning is
told as a summary: that is what most clients show. Source: OpenAI's SDKs, ai-sdk and Codex, measured; `docs/api.md`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Literal

from control.dialects.calls import whole_arguments
from control.dialects.custom_input import CustomInput
from control.dialects.logprobs import token_logprob
from control.dialects.responses_tools import Origin
from engine import wire

Event = dict[str, Any]
Status = Literal["in_progress", "completed", "incomplete"]


class OutputItem(ABC):
    """`whole` is the item as the client gets it, once it is."""

    def __init__(self, item_id: str, index: int) -> None:
        self.id = item_id
        self.whole: dict[str, Any] | None = None
        self._index = index
        self._pieces: list[str] = []

    @property
    def text(self) -> str:
        return "".join(self._pieces)

    @abstractmethod
    def open(self) -> list[Event]:
        """The events with which it begins."""

    def _added(self, item: dict[str, Any]) -> Event:
        return {"type": "response.output_item.added", "output_index": self._index, "item": item}

    def _done(self, item: dict[str, Any]) -> Event:
        self.whole = item
        return {"type": "response.output_item.done", "output_index": self._index, "item": item}

    def _event(self, name: str, /, **fields: Any) -> Event:
        return {"type": f"response.{name}", "item_id": self.id, "output_index": self._index, **fields}


class WordsItem(OutputItem):
    """A stretch of words."""

    @abstractmethod
    def feed(self, text: str, logprobs: Sequence[wire.TokenLogprob]) -> list[Event]:
        """More of its words."""

    @abstractmethod
    def close(self, *, is_cut: bool) -> list[Event]:
        """The events with which it ends; `whole` is there then."""


class MessageItem(WordsItem):
    def __init__(self, item_id: Callable[[str], str], index: int) -> None:
        super().__init__(item_id("msg"), index)
        self._logprobs: list[dict[str, Any]] = []

    def open(self) -> list[Event]:
        return [
            self._added(self._item("in_progress", [])),
            self._event("content_part.added", content_index=0, part=self._part()),
        ]

    def feed(self, text: str, logprobs: Sequence[wire.TokenLogprob]) -> list[Event]:
        self._pieces.append(text)
        named = [token_logprob(each, unknown_bytes=[]) for each in logprobs]
        self._logprobs += named
        return [self._event("output_text.delta", content_index=0, delta=text, logprobs=named)]

    def close(self, *, is_cut: bool) -> list[Event]:
        part = self._part()
        return [
            self._event("output_text.done", content_index=0, text=self.text, logprobs=self._logprobs),
            self._event("content_part.done", content_index=0, part=part),
            self._done(self._item("incomplete" if is_cut else "completed", [part])),
        ]

    def _part(self) -> dict[str, Any]:
        return {"type": "output_text", "text": self.text, "annotations": [], "logprobs": [*self._logprobs]}

    def _item(self, status: Status, content: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "type": "message", "status": status, "role": "assistant", "content": content}


class ReasoningItem(WordsItem):
    def __init__(self, item_id: Callable[[str], str], index: int) -> None:
        super().__init__(item_id("rs"), index)

    def open(self) -> list[Event]:
        return [
            self._added(self._item("in_progress", [])),
            self._event("reasoning_summary_part.added", summary_index=0, part=self._part()),
        ]

    def feed(self, text: str, logprobs: Sequence[wire.TokenLogprob]) -> list[Event]:
        self._pieces.append(text)
        return [self._event("reasoning_summary_text.delta", summary_index=0, delta=text)]

    def close(self, *, is_cut: bool) -> list[Event]:
        part = self._part()
        return [
            self._event("reasoning_summary_text.done", summary_index=0, text=self.text),
            self._event("reasoning_summary_part.done", summary_index=0, part=part),
            self._done(self._item("incomplete" if is_cut else "completed", [part])),
        ]

    def _part(self) -> dict[str, Any]:
        return {"type": "summary_text", "text": self.text}

    def _item(self, status: Status, summary: list[dict[str, Any]]) -> dict[str, Any]:
        return {"id": self.id, "type": "reasoning", "status": status, "summary": summary}


class CallItem(OutputItem):
    """A call of a function, or of a custom tool: that one's text is taken out of the arguments that the model writes.

    What was cut off is told as it was written, be it nothing: a client that looks can tell.
    """

    def __init__(self, item_id: Callable[[str], str], index: int, begin: wire.ToolCallBegin, origin: Origin) -> None:
        super().__init__(item_id("fc" if origin.kind == "function" else "ctc"), index)
        self.call_id = begin.id
        self._origin = origin
        self._custom = CustomInput() if origin.kind == "custom" else None
        self._arguments: list[str] = []

    def open(self) -> list[Event]:
        return [self._added(self._item("in_progress"))]

    def feed(self, arguments: str) -> list[Event]:
        self._arguments.append(arguments)
        return self._delta(arguments if self._custom is None else self._custom.feed(arguments))

    def close(self) -> list[Event]:
        status: Status = "incomplete" if whole_arguments("".join(self._arguments)) is None else "completed"
        if self._custom is not None:
            rest = self._custom.finish()
            return [
                *self._delta(rest),
                self._event("custom_tool_call_input.done", input=self.text),
                self._done(self._item(status)),
            ]
        done = self._event("function_call_arguments.done", name=self._origin.name, arguments=self.text)
        return [done, self._done(self._item(status))]

    def _delta(self, text: str) -> list[Event]:
        if not text:
            return []
        self._pieces.append(text)
        name = "custom_tool_call_input" if self._custom is not None else "function_call_arguments"
        return [self._event(f"{name}.delta", delta=text)]

    def _item(self, status: Status) -> dict[str, Any]:
        is_custom = self._custom is not None
        item: dict[str, Any] = {
            "id": self.id,
            "type": "custom_tool_call" if is_custom else "function_call",
            "status": status,
            "call_id": self.call_id,
            "name": self._origin.name,
            "input" if is_custom else "arguments": self.text,
        }
        if self._origin.namespace is not None:
            item["namespace"] = self._origin.namespace
        return item

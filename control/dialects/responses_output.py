"""The output items of one Responses answer, as the engine's events make them, and the events that tell a client so.

It numbers no event and frames none (`responses_answer`), and knows no Response object.
"""

from collections.abc import Sequence
from typing import Any, Literal

from control.dialects.responses_output_items import CallItem, Event, MessageItem, OutputItem, ReasoningItem, WordsItem
from control.dialects.responses_tools import NeutralTools
from engine import wire


class OutputItems:
    """Several calls may be open at once, and beside them one message or one stretch of reasoning."""

    def __init__(self, request_id: str, tools: NeutralTools) -> None:
        self._request_id = request_id
        self._tools = tools
        self._all: list[OutputItem] = []
        self._words: WordsItem | None = None
        self._open_calls: dict[int, CallItem] = {}

    @property
    def has_begun(self) -> bool:
        return bool(self._all)

    @property
    def whole(self) -> list[dict[str, Any]]:
        """Every item that is whole, as the client gets it, in their order."""
        return [item.whole for item in self._all if item.whole is not None]

    def add(self, event: wire.AnyEvent) -> list[Event]:
        """What to tell the client. After Finished every item is whole."""
        match event:
            case wire.TextDelta() if event.text or event.logprobs:
                return self._say("message", event.text, event.logprobs)
            case wire.ReasoningDelta() if event.text:
                return self._say("reasoning", event.text, ())
            case wire.ToolCallBegin():
                call = CallItem(self._item_id, len(self._all), event, self._tools.origin(event.name))
                self._open_calls[event.index] = call
                return [*self._close_words(), *self._open(call)]
            case wire.ToolCallDelta() if event.arguments:
                return self._open_calls[event.index].feed(event.arguments)
            case wire.ToolCallEnd():
                return self._open_calls.pop(event.index).close()
            case wire.Finished():
                closing = self._close_words(is_cut=event.reason == "length")
                while self._open_calls:
                    closing += self._open_calls.pop(min(self._open_calls)).close()
                return closing
        return []

    def _say(
        self, kind: Literal["message", "reasoning"], text: str, logprobs: Sequence[wire.TokenLogprob]
    ) -> list[Event]:
        item_type: type[MessageItem] | type[ReasoningItem] = MessageItem if kind == "message" else ReasoningItem
        events: list[Event] = []
        if not isinstance(self._words, item_type):
            events += self._close_words()
            self._words = item_type(self._item_id, len(self._all))
            events += self._open(self._words)
        return events + self._words.feed(text, logprobs)

    def _open(self, item: OutputItem) -> list[Event]:
        self._all.append(item)
        return item.open()

    def _close_words(self, *, is_cut: bool = False) -> list[Event]:
        words, self._words = self._words, None
        return [] if words is None else words.close(is_cut=is_cut)

    def _item_id(self, prefix: str) -> str:
        return f"{prefix}_{self._request_id}_{len(self._all)}"

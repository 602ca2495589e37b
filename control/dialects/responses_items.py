"""The input items of a Responses request, to the engine's neutral messages: same order, nothing lost that a model sees.

What the model did in one go (thought, said, called) comes as several items, and is one message. It does not fold
system messages: only the engine knows what the model's template can say. Items of a type that is not known, and those
that only OpenAI can read, are left out, and noted.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import msgspec

from control.dialects.calls import UNKNOWN_NAME, neutral_call
from control.dialects.custom_input import arguments_of
from control.dialects.decoding import converted, json_of, text_of
from control.dialects.limits import ITEMS_LIMIT, check_number
from control.dialects.openai_parts import neutral_parts, result_parts
from control.dialects.response_history import Conversation, OwnHistory
from control.dialects.responses_tools import NeutralTools, RawTool
from control.dialects.skipped import Skipped
from control.dialects.volatile import without_volatile_parts
from control.errors import InvalidRequest
from engine import wire

_ROLES: Final[dict[str, Literal["system", "user", "assistant"]]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
}


class MessageItem(msgspec.Struct, frozen=True):
    role: str
    content: Any = None


class ReasoningItem(msgspec.Struct, frozen=True):
    summary: Any = None
    content: Any = None


class CallItem(msgspec.Struct, frozen=True):
    """A function_call, or a custom_tool_call with its `input`."""

    name: str | None = None
    call_id: str | None = None
    id: str | None = None
    namespace: str | None = None
    arguments: Any = None
    input: Any = None


class BuiltInCallItem(msgspec.Struct, frozen=True):
    call_id: str | None = None
    id: str | None = None
    action: Any = None
    arguments: Any = None


class OutputItem(msgspec.Struct, frozen=True):
    call_id: str | None = None
    id: str | None = None
    output: Any = None
    tools: list[Any] | None = None


class ReferenceItem(msgspec.Struct, frozen=True):
    id: str


@dataclass(frozen=True, slots=True)
class InputItem:
    """`field` is where the client sent it."""

    kind: str
    item: dict[str, Any]
    field: str


@dataclass(frozen=True, slots=True)
class NeutralInput:
    """`fields` says where the client sent each message."""

    messages: tuple[wire.Message, ...]
    fields: tuple[str, ...]


def earlier_items(conversation: Conversation) -> list[InputItem]:
    """Of what `previous_response_id` names."""
    return [InputItem(_kind(item) or "", item, "previous_response_id") for turn in conversation for item in turn.items]


def input_items(items: str | list[Any], history: OwnHistory) -> list[InputItem]:
    """With every item_reference replaced by what it names. Raises InvalidRequest that names the field."""
    if isinstance(items, str):
        return [InputItem("message", {"role": "user", "content": items}, "input")]
    check_number(sum(_num_parts(item) for item in items), ITEMS_LIMIT, "items and parts", "input")
    return [_input_item(item, f"input[{index}]", history) for index, item in enumerate(items)]


def tools_in(items: Sequence[InputItem]) -> list[RawTool]:
    """Some clients send tools in the course of the conversation, for instance those that a search found."""
    return [
        RawTool(tool, f"{each.field}.tools[{index}]")
        for each in items
        if each.kind in ("additional_tools", "tool_search_output") and isinstance(each.item.get("tools"), list)
        for index, tool in enumerate(each.item["tools"])
    ]


def neutral_input(items: Sequence[InputItem], tools: NeutralTools, skipped: Skipped) -> NeutralInput:
    """Raises InvalidRequest that names the field."""
    # Again, with what was said before.
    check_number(sum(_num_parts(each.item) for each in items), ITEMS_LIMIT, "items and parts", "input")
    turns = _Turns()
    for index, each in enumerate(items):
        _add(each, tools, turns, skipped, fallback_id=f"call_{index}")
    turns.close()
    return NeutralInput(tuple(turns.messages), tuple(turns.fields))


def _num_parts(item: object) -> int:
    lists = [item.get(key) for key in ("content", "output", "summary")] if isinstance(item, dict) else []
    return 1 + sum(len(parts) for parts in lists if isinstance(parts, list))


def _kind(item: dict[str, Any]) -> str | None:
    """Messages may come without a type, and so may references."""
    kind = item.get("type")
    if kind is None:
        return "message" if "role" in item else "item_reference" if item.keys() == {"id"} else None
    return kind if isinstance(kind, str) else None


def _input_item(item: object, place: str, history: OwnHistory) -> InputItem:
    if not isinstance(item, dict):
        raise InvalidRequest("An item of the input is an object.", param=place)
    kind = _kind(item)
    if kind is None:
        raise InvalidRequest("An item of the input needs a type.", param=f"{place}.type")
    if kind != "item_reference":
        return InputItem(kind, item, place)
    reference = converted(item, ReferenceItem, place)
    found = history.item(reference.id)
    if found is None:
        raise InvalidRequest(
            f"The item {reference.id!r} is not here: it was not stored, or it is too old.", param=f"{place}.id"
        )
    return InputItem(found["type"], found, place)


class _Turns:
    """Messages, and the one that the model's items are being put together to."""

    def __init__(self) -> None:
        self.messages: list[wire.Message] = []
        self.fields: list[str] = []
        self._open: _Assistant | None = None

    def add(self, message: wire.Message, place: str) -> None:
        self.close()
        self.messages.append(message)
        self.fields.append(place)

    def reason(self, text: str, place: str) -> None:
        # After a call it can only be put before: the answers of the calls must follow their message.
        if self._open is not None and self._open.content and not self._open.calls:
            self.close()
        self._assistant(place).reasoning.append(text)

    def say(self, content: tuple[wire.Part, ...], place: str) -> None:
        if not content:
            return
        # Two messages in a row are two, as the client wrote them; around calls they were one answer.
        if self._open is not None and self._open.content and not self._open.calls:
            self.close()
        self._assistant(place).content.extend(content)

    def call(self, call: wire.ToolCall, place: str) -> None:
        self._assistant(place).calls.append(call)

    def close(self) -> None:
        if self._open is not None:
            self.messages.append(self._open.message())
            self.fields.append(self._open.place)
            self._open = None

    def _assistant(self, place: str) -> "_Assistant":
        if self._open is None:
            self._open = _Assistant(place)
        return self._open


@dataclass(slots=True)
class _Assistant:
    place: str
    reasoning: list[str] = field(default_factory=list)
    content: list[wire.Part] = field(default_factory=list)
    calls: list[wire.ToolCall] = field(default_factory=list)

    def message(self) -> wire.Message:
        return wire.Message(
            role="assistant",
            content=tuple(self.content),
            reasoning="\n\n".join(self.reasoning) or None,
            tool_calls=tuple(self.calls),
        )


def _add(each: InputItem, tools: NeutralTools, turns: _Turns, skipped: Skipped, *, fallback_id: str) -> None:
    match each.kind:
        case "message":
            _add_message(converted(each.item, MessageItem, each.field), turns, each.field, skipped)
        case "reasoning":
            reasoning = converted(each.item, ReasoningItem, each.field)
            text = text_of(reasoning.content) or text_of(reasoning.summary)
            if text:
                turns.reason(text, each.field)
        case "function_call" | "custom_tool_call":
            call = converted(each.item, CallItem, each.field)
            is_custom = each.kind == "custom_tool_call"
            arguments = arguments_of(call.input) if is_custom else call.arguments
            name = tools.flat(call.name or UNKNOWN_NAME, call.namespace)
            call_id = call.call_id or call.id or fallback_id
            turns.call(neutral_call(call_id, name, arguments, f"{each.field}.arguments"), each.field)
        case "local_shell_call" | "tool_search_call":
            built_in = converted(each.item, BuiltInCallItem, each.field)
            arguments = built_in.action or built_in.arguments
            call_id = built_in.call_id or built_in.id or fallback_id
            turns.call(neutral_call(call_id, each.kind.removesuffix("_call"), arguments, each.field), each.field)
        case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output" | "tool_search_output":
            turns.add(_tool_message(each, skipped), each.field)
        case "additional_tools":
            pass
        case kind:
            skipped.add("item", kind)


def _add_message(message: MessageItem, turns: _Turns, place: str, skipped: Skipped) -> None:
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidRequest("The role is not known.", param=f"{place}.role")
    content = neutral_parts(message.content, f"{place}.content", skipped)
    if role == "system":
        content = without_volatile_parts(content)
    if role == "assistant":
        turns.say(content, place)
    else:
        turns.add(wire.Message(role=role, content=content), place)


def _tool_message(each: InputItem, skipped: Skipped) -> wire.Message:
    item = converted(each.item, OutputItem, each.field)
    output = item.output if item.output is not None else item.tools
    if each.kind == "tool_search_output" and output is not None:
        output = json_of(output)
    return wire.Message(
        role="tool",
        content=result_parts(output, f"{each.field}.output", skipped),
        tool_call_id=item.call_id or item.id,
    )

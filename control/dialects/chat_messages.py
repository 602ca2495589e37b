"""The messages of a chat request, from OpenAI's form to the engine's neutral one: same order, same roles, nothing lost.

It does not fold or drop messages: only the engine knows what the model's template can say.
"""

from collections.abc import Iterator
from typing import Any, Final, Literal

import msgspec

from control.dialects.calls import neutral_call
from control.dialects.custom_input import arguments_of
from control.dialects.decoding import text_of
from control.dialects.limits import ITEMS_LIMIT, check_number
from control.dialects.openai_parts import neutral_parts, result_parts
from control.dialects.skipped import Skipped
from control.dialects.volatile import without_volatile_parts
from control.errors import InvalidRequest
from engine import wire

_ROLES: Final[dict[str, Literal["system", "user", "assistant", "tool"]]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
    # From before there were tools.
    "function": "tool",
}


class ChatFunctionCall(msgspec.Struct):
    name: str | None = None
    arguments: Any = None


class ChatCustomCall(msgspec.Struct):
    name: str | None = None
    input: Any = None


class ChatToolCall(msgspec.Struct):
    function: ChatFunctionCall | None = None
    custom: ChatCustomCall | None = None
    id: str | None = None
    type: str | None = None


class ChatMessage(msgspec.Struct):
    """As the client sent it. `reasoning` is what some clients call `reasoning_content`."""

    role: str
    content: Any = None
    name: str | None = None
    refusal: Any = None
    reasoning_content: Any = None
    reasoning: Any = None
    tool_calls: list[ChatToolCall | None] | None = None
    tool_call_id: str | None = None
    function_call: ChatFunctionCall | None = None


def neutral_messages(messages: list[ChatMessage], skipped: Skipped) -> tuple[wire.Message, ...]:
    """Raises InvalidRequest that names the field."""
    num_items = sum(_num_items(message) for message in messages)
    check_number(num_items, ITEMS_LIMIT, "messages, parts and tool calls", "messages")
    calls = _Calls()
    return tuple(_message(message, index, calls, skipped) for index, message in enumerate(messages))


class _Calls:
    """Which results belong to which calls. Ids are the client's: they may repeat, and a result may have none."""

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._unanswered: list[str] = []

    def made(self, calls: tuple[wire.ToolCall, ...]) -> None:
        self._names.update({call.id: call.name for call in calls})
        self._unanswered = [call.id for call in calls]

    def answered(self, call_id: str | None) -> str | None:
        """The id of the call that a result is for: without one, the next that has no result yet."""
        if not call_id:
            return self._unanswered.pop(0) if self._unanswered else None
        if call_id in self._unanswered:
            self._unanswered.remove(call_id)
        return call_id

    def name(self, call_id: str | None) -> str | None:
        """Of the tool that was called last by this id."""
        return None if call_id is None else self._names.get(call_id)


def _num_items(message: ChatMessage) -> int:
    num_parts = len(message.content) if isinstance(message.content, list) else 0
    return 1 + num_parts + len(message.tool_calls or ())


def _message(message: ChatMessage, index: int, calls: _Calls, skipped: Skipped) -> wire.Message:
    field = f"messages[{index}]"
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidRequest("The role is not known.", param=f"{field}.role")
    if role == "tool":
        call_id = calls.answered(message.tool_call_id)
        name = message.name or calls.name(call_id)
        result = result_parts(message.content, f"{field}.content", skipped)
        return wire.Message(role="tool", content=result, tool_call_id=call_id, name=name)
    content = neutral_parts(message.content, f"{field}.content", skipped)
    if role == "system":
        content = without_volatile_parts(content)
    if role != "assistant":
        return wire.Message(role=role, content=content, name=message.name)
    made = tuple(_tool_calls(message, index, skipped))
    calls.made(made)
    return wire.Message(
        role="assistant",
        content=content or neutral_parts(text_of(message.refusal), field, skipped),
        reasoning=text_of(message.reasoning_content) or text_of(message.reasoning) or None,
        tool_calls=made,
        name=message.name,
    )


def _tool_calls(message: ChatMessage, index: int, skipped: Skipped) -> Iterator[wire.ToolCall]:
    field = f"messages[{index}]"
    for i, call in enumerate(message.tool_calls or ()):
        if call is None:
            continue
        call_id, place = call.id or f"call_{index}_{i}", f"{field}.tool_calls[{i}]"
        if call.custom is not None:
            yield neutral_call(call_id, call.custom.name, arguments_of(call.custom.input), place)
        elif call.function is not None or call.type in (None, "function", "custom"):
            function = call.function or ChatFunctionCall()
            yield neutral_call(call_id, function.name, function.arguments, f"{place}.function.arguments")
        else:
            skipped.add("tool_call", call.type)
    made = message.function_call
    if made is not None and not message.tool_calls:
        yield neutral_call(f"call_{index}_0", made.name, made.arguments, f"{field}.function_call.arguments")

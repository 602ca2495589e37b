"""The messages of a chat request, from OpenAI's form to the engine's neutral one: same order, same roles, nothing lost.

It does not fold or drop messages: only the engine knows what the model's template can say.
"""

import base64
import hashlib
import re
from typing import Any, Final, Literal

import msgspec

from control.dialects.nesting import NESTING_LIMIT, is_too_deep
from control.errors import InvalidRequest
from engine import wire

# Each costs a microsecond or two; a session that fills a million tokens has some thousands.
ITEMS_LIMIT: Final = 50_000

_DATA_URL: Final = re.compile(r"data:(?P<media_type>[\w.+-]+/[\w.+-]+);base64,(?P<data>.*)", re.DOTALL)
_ROLES: Final[dict[str, Literal["system", "user", "assistant", "tool"]]] = {
    "system": "system",
    "developer": "system",
    "user": "user",
    "assistant": "assistant",
    "tool": "tool",
}


class ChatFunctionCall(msgspec.Struct):
    name: str
    arguments: str | dict[str, Any] | None = None


class ChatToolCall(msgspec.Struct):
    function: ChatFunctionCall
    id: str | None = None


class ChatMessage(msgspec.Struct):
    """As the client sent it. `reasoning` is what some clients call `reasoning_content`."""

    role: str
    content: str | list[Any] | None = None
    name: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[ChatToolCall] | None = None
    tool_call_id: str | None = None
    function_call: Any = None


def neutral_messages(messages: list[ChatMessage]) -> tuple[wire.Message, ...]:
    """Raises InvalidRequest that names the field."""
    if sum(_num_items(message) for message in messages) > ITEMS_LIMIT:
        raise InvalidRequest(
            f"At most {ITEMS_LIMIT} messages, parts and tool calls together are supported.", param="messages"
        )
    return tuple(_message(message, index) for index, message in enumerate(messages))


def _num_items(message: ChatMessage) -> int:
    num_parts = len(message.content) if isinstance(message.content, list) else 0
    return 1 + num_parts + len(message.tool_calls or ())


def _message(message: ChatMessage, index: int) -> wire.Message:
    field = f"messages[{index}]"
    role = _ROLES.get(message.role)
    if role is None:
        raise InvalidRequest(f"The role {message.role!r} is not known.", param=f"{field}.role")
    if message.function_call is not None:
        raise InvalidRequest("function_call is not supported; use tool_calls.", param=f"{field}.function_call")
    return wire.Message(
        role=role,
        content=_parts(message.content, f"{field}.content"),
        reasoning=message.reasoning_content if message.reasoning_content is not None else message.reasoning,
        tool_calls=tuple(
            _tool_call(call, f"{field}.tool_calls[{i}]", fallback_id=f"call_{index}_{i}")
            for i, call in enumerate(message.tool_calls or ())
        ),
        tool_call_id=message.tool_call_id,
        name=message.name,
    )


def _parts(content: str | list[Any] | None, field: str) -> tuple[wire.Part, ...]:
    if content is None or content == "":
        return ()
    if isinstance(content, str):
        return (wire.TextPart(text=content),)
    return tuple(_part(part, f"{field}[{index}]") for index, part in enumerate(content))


def _part(part: object, field: str) -> wire.Part:
    if isinstance(part, str):
        return wire.TextPart(text=part)
    if not isinstance(part, dict):
        raise InvalidRequest("A part of a message is an object with a type.", param=field)
    match part.get("type"):
        case "text" | "input_text" | "output_text":
            return _text(part.get("text"), f"{field}.text")
        case "refusal":
            return _text(part.get("refusal"), f"{field}.refusal")
        case "image_url":
            return _image(part.get("image_url"), f"{field}.image_url")
        case kind:
            raise InvalidRequest(f"Parts of type {kind!r} are not supported.", param=f"{field}.type")


def _text(text: object, field: str) -> wire.TextPart:
    if not isinstance(text, str):
        raise InvalidRequest("A text is expected here.", param=field)
    return wire.TextPart(text=text)


def _image(image: object, field: str) -> wire.ImagePart:
    """From a data URL, alone or in an object. Nothing is fetched: a URL could reach into the network that we are in."""
    url = image.get("url") if isinstance(image, dict) else image
    match_ = _DATA_URL.fullmatch(url) if isinstance(url, str) else None
    if match_ is None:
        raise InvalidRequest("An image must be a data URL in base64; nothing is fetched from the network.", param=field)
    try:
        content = base64.b64decode(match_["data"], validate=True)
    except ValueError as error:
        raise InvalidRequest(f"The image is not valid base64: {error}.", param=field) from error
    return wire.ImagePart(
        sha256=hashlib.sha256(content).hexdigest(), media_type=match_["media_type"], data=match_["data"]
    )


def _tool_call(call: ChatToolCall, field: str, *, fallback_id: str) -> wire.ToolCall:
    """History is replayed as it was: arguments that are cut off or not JSON stay as text, and none at all are `{}`."""
    arguments = call.function.arguments
    if is_too_deep(arguments):
        raise InvalidRequest(f"At most {NESTING_LIMIT} levels are supported.", param=f"{field}.function.arguments")
    raw = arguments if isinstance(arguments, str) else msgspec.json.encode(arguments or {}).decode()
    raw = raw if raw.strip() else "{}"
    return wire.ToolCall(id=call.id or fallback_id, name=call.function.name, arguments_raw=raw, arguments=_parsed(raw))


def _parsed(raw: str) -> dict[str, Any] | None:
    """None for what is not JSON, no object, or too deep to be handed on as one: the text has it all the same."""
    try:
        arguments = msgspec.json.decode(raw)
    except (msgspec.DecodeError, RecursionError):
        return None
    return arguments if isinstance(arguments, dict) and not is_too_deep(arguments) else None

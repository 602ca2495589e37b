"""The system prompt and messages of a Messages request, from Anthropic's blocks to the engine's neutral messages.

It keeps every message in its place, system messages too: only the engine knows what the model's template can say. A
type of block that it does not know becomes the text that is in it, or nothing; it never fails a request.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from control.dialects.attachments import is_unsupported, refusal, said_instead
from control.dialects.calls import neutral_call
from control.dialects.decoding import json_of, text_in, text_of
from control.dialects.images import image
from control.dialects.limits import ITEMS_LIMIT, check_number
from control.dialects.skipped import Skipped
from control.dialects.volatile import without_tokens_left, without_volatile_parts
from control.errors import InvalidRequest
from engine import wire

# How the errors of Claude Code's own tools begin.
_SAYS_ERROR: Final = ("error", "<tool_use_error>")
_UNREADABLE_DOCUMENT: Final = "[A document was attached here. It is not plain text, so it cannot be read.]"

Content = str | list[Any] | None


class InputMessage(msgspec.Struct):
    role: str
    content: Content = None


@dataclass(slots=True)
class Conversation:
    """`places` says of each neutral message where it stands in the client's body: one may become several."""

    messages: list[wire.Message] = field(default_factory=list)
    places: list[str] = field(default_factory=list)

    @property
    def is_prefill(self) -> bool:
        """The last message is the beginning of the answer."""
        last = self.messages[-1]
        has_text = any(isinstance(part, wire.TextPart) for part in last.content)
        return last.role == "assistant" and has_text and not last.tool_calls

    def add(self, message: wire.Message, place: str) -> None:
        self.messages.append(message)
        self.places.append(place)


def conversation_of(system: Content, messages: list[InputMessage], skipped: Skipped) -> Conversation:
    """Raises InvalidRequest that names the field."""
    reader = _Reader(skipped, num_blocks=len(messages))
    conversation = Conversation()
    instructions = reader.system_message(system, "system")
    if instructions.content:
        conversation.add(instructions, "system")
    first_user = next((index for index, message in enumerate(messages) if message.role == "user"), None)
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        for neutral in reader.messages(message, place, is_first_user=index == first_user):
            conversation.add(neutral, place)
    if _is_empty_answer(conversation.messages[-1]) and len(conversation.messages) > 1:
        # The beginning of an answer that has not begun.
        conversation.messages.pop()
        conversation.places.pop()
    return conversation


def _is_empty_answer(message: wire.Message) -> bool:
    return message.role == "assistant" and not message.content and not message.tool_calls


class _Reader:
    """Of one request. Every method raises InvalidRequest; `place` is how the client names what is read."""

    def __init__(self, skipped: Skipped, *, num_blocks: int) -> None:
        self._skipped = skipped
        self._num_blocks = num_blocks

    def messages(self, message: InputMessage, place: str, *, is_first_user: bool) -> Iterator[wire.Message]:
        content_place = f"{place}.content"
        match message.role:
            case "user":
                yield from self._user_messages(message.content, content_place, is_first=is_first_user)
            case "assistant":
                yield self._assistant_message(message.content, content_place)
            case "system":
                yield self.system_message(message.content, content_place)
            case _:
                raise InvalidRequest("The role is not known.", param=f"{place}.role")

    def system_message(self, content: Content, place: str) -> wire.Message:
        return wire.Message(role="system", content=without_volatile_parts(self._parts(content, place)))

    def _user_messages(self, content: Content, place: str, *, is_first: bool) -> Iterator[wire.Message]:
        """Each tool result is a message of its own, where it stood between the other blocks."""
        pending: list[wire.Part] = []
        has_results = False
        for block, at in self._blocks(content, place):
            if not (isinstance(block, dict) and block.get("type") == "tool_result"):
                parts = self._block_parts(block, at)
                pending.extend(_without_empty(map(_without_counter, parts)) if is_first else parts)
                continue
            if pending:
                yield wire.Message(role="user", content=tuple(pending))
                pending = []
            has_results = True
            yield self._tool_message(block, at)
        if pending or not has_results:
            yield wire.Message(role="user", content=tuple(pending))

    def _tool_message(self, block: dict[str, Any], place: str) -> wire.Message:
        call_id = _id(block, "tool_use_id", place)
        parts = self._result_parts(block.get("content"), f"{place}.content")
        if block.get("is_error") is True:
            parts = _marked_as_error(parts)
        return wire.Message(role="tool", content=parts, tool_call_id=call_id)

    def _assistant_message(self, content: Content, place: str) -> wire.Message:
        """Thoughts are read whoever signed them; those that Anthropic encrypted are unreadable, and left out."""
        parts: list[wire.Part] = []
        thoughts: list[str] = []
        calls: list[wire.ToolCall] = []
        for block, at in self._blocks(content, place):
            match block:
                case {"type": "thinking"}:
                    thoughts.append(text_of(block.get("thinking")))
                case {"type": "redacted_thinking"}:
                    pass
                case {"type": "tool_use"}:
                    calls.append(_tool_call(block, at))
                case _:
                    parts.extend(self._block_parts(block, at))
        return wire.Message(
            role="assistant",
            content=tuple(parts),
            reasoning="\n\n".join(filter(None, thoughts)) or None,
            tool_calls=tuple(calls),
        )

    def _result_parts(self, content: object, place: str) -> tuple[wire.Part, ...]:
        """What is no block is JSON as text: a refusal would end the session in which the result stands."""
        if not isinstance(content, str | list | None):
            return (wire.TextPart(text=json_of(content)),)
        return tuple(part for block, at in self._blocks(content, place) for part in self._result_block(block, at))

    def _result_block(self, block: object, place: str) -> tuple[wire.Part, ...]:
        kind = block.get("type") if isinstance(block, dict) else None
        if isinstance(kind, str) and kind != "document" and is_unsupported(kind):
            return (said_instead(kind),)
        if isinstance(block, dict) and kind is None and "text" not in block:
            return (wire.TextPart(text=json_of(block)),)
        try:
            parts = tuple(self._block_parts(block, place))
        except InvalidRequest:
            return (wire.TextPart(text=json_of(block)),)
        # They may stand within documents and search results.
        return tuple(said_instead("image") if isinstance(part, wire.ImagePart) else part for part in parts)

    # --- Blocks that are the same in every message ---

    def _blocks(self, content: Content, place: str) -> Iterator[tuple[Any, str]]:
        """Each with its place. A text is a block by itself."""
        if not isinstance(content, str | list | None):
            raise InvalidRequest("A text or a list of blocks is expected here.", param=place)
        is_text = isinstance(content, str)
        blocks = [content] if is_text else content or []
        self._num_blocks += len(blocks)
        check_number(self._num_blocks, ITEMS_LIMIT, "messages and blocks", "messages")
        for index, block in enumerate(blocks):
            yield block, place if is_text else f"{place}[{index}]"

    def _parts(self, content: Content, place: str) -> tuple[wire.Part, ...]:
        return tuple(part for block, at in self._blocks(content, place) for part in self._block_parts(block, at))

    def _block_parts(self, block: object, place: str) -> Iterator[wire.Part]:
        """Nothing for a text that is empty."""
        if block is None:
            return
        if isinstance(block, str):
            yield from _text_parts(block)
            return
        if not isinstance(block, dict):
            raise InvalidRequest("A block is an object with a type.", param=place)
        match block.get("type"):
            case "text":
                yield from _text_parts(text_in(block, "text", place))
            case "image":
                yield _image(block.get("source"), f"{place}.source")
            case "document":
                yield from self._document(block, place)
            case "search_result":
                heading = (text for key in ("title", "source") if isinstance(text := block.get(key), str))
                yield from _text_parts("\n".join(heading))
                yield from self._parts(block.get("content"), f"{place}.content")
            case "tool_reference":
                yield from _text_parts(f"The tool {block.get('tool_name')} can be called now.")
            case str(kind) if is_unsupported(kind):
                raise refusal(kind, place)
            case kind:
                yield from self._unknown(block, str(kind), place)

    def _document(self, block: dict[str, Any], place: str) -> Iterator[wire.Part]:
        """A refusal would end the session in which the document stands, so what cannot be read is said in its place."""
        title, source = block.get("title"), block.get("source")
        if isinstance(title, str):
            yield from _text_parts(title)
        match source:
            case {"type": "text", "data": str(text)}:
                yield from _text_parts(text)
            case {"type": "content", "content": str() | list() as content}:
                yield from self._parts(content, f"{place}.source.content")
            case _:
                yield wire.TextPart(text=_UNREADABLE_DOCUMENT)

    def _unknown(self, block: dict[str, Any], kind: str, place: str) -> Iterator[wire.Part]:
        text, content = block.get("text"), block.get("content")
        if isinstance(text, str):
            yield from _text_parts(text)
            return
        try:
            parts = self._parts(content, f"{place}.content") if isinstance(content, str | list) else ()
        except InvalidRequest:
            # What is in a block that nobody knows need not be what it looks like.
            parts = ()
        if not parts:
            self._skipped.add("block", kind)
        yield from parts


def _text_parts(text: str) -> Iterator[wire.Part]:
    if text:
        yield wire.TextPart(text=text)


def _without_empty(parts: Iterator[wire.Part]) -> tuple[wire.Part, ...]:
    return tuple(part for part in parts if isinstance(part, wire.ImagePart) or part.text)


def _without_counter(part: wire.Part) -> wire.Part:
    return part if isinstance(part, wire.ImagePart) else wire.TextPart(text=without_tokens_left(part.text))


def _marked_as_error(parts: tuple[wire.Part, ...]) -> tuple[wire.Part, ...]:
    """Neutral messages have no flag for it, so that it must be said, once."""
    first = parts[0] if parts else None
    if not isinstance(first, wire.TextPart):
        return (wire.TextPart(text="Error"), *parts)
    if first.text.lstrip().lower().startswith(_SAYS_ERROR):
        return parts
    return (wire.TextPart(text=f"Error: {first.text}"), *parts[1:])


def _tool_call(block: dict[str, Any], place: str) -> wire.ToolCall:
    # An id that was not sent is the same each time: the numbers in the place.
    call_id = _id(block, "id", place) or "_".join(["toolu", *re.findall(r"\d+", place)])
    return neutral_call(call_id, text_of(block.get("name")), block.get("input"), f"{place}.input")


def _id(block: dict[str, Any], key: str, place: str) -> str | None:
    return text_in(block, key, place) or None if key in block else None


def _image(source: object, place: str) -> wire.ImagePart:
    match source:
        case {"type": "base64", "media_type": str(media_type), "data": str(data)}:
            return image(media_type, data, f"{place}.data")
    raise InvalidRequest(
        "An image must be base64 with its media_type; nothing is fetched from the network.", param=place
    )

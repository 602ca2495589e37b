"""Custom tools, whose input is plain text: to the model each is a function with one text, and back again.

It knows a custom tool's grammar only as words for the model: the engine does not enforce it.
"""

import json
import re
from typing import Any, Final

import msgspec

from engine import wire

_PARAMETERS: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {"input": {"type": "string", "description": "The whole input of the tool, as plain text."}},
    "required": ["input"],
    "additionalProperties": False,
}
_BEGIN: Final = re.compile(r'\s*\{\s*"input"\s*:\s*"')
# Whole characters of a JSON string. Behind the first half of a surrogate pair the second may come, and is waited for.
_CHARACTERS: Final = re.compile(
    r"""(?:[^"\\]|\\["\\/bfnrt]|\\u(?![dD][89abAB])[0-9a-fA-F]{4}"""
    r"""|\\u[dD][89abAB][0-9a-fA-F]{2}(?:\\u[0-9a-fA-F]{4}|(?=[^\\])|(?=\\[^u])))*"""
)


class ChatCustom(msgspec.Struct):
    name: str
    description: str | None = None
    format: Any = None


def function_of(custom: ChatCustom) -> wire.Tool:
    """The tool as the model sees it."""
    return wire.Tool(
        name=custom.name,
        description="\n\n".join(part for part in (custom.description, _rules(custom.format)) if part),
        parameters=_PARAMETERS,
    )


def arguments_of(text: str) -> str:
    """Of a call that was made earlier, as the model wrote them."""
    return msgspec.json.encode({"input": text}).decode()


class InputReader:
    """Takes the arguments of one call piece by piece, and gives the input in them as far as it is known.

    A model that did not write `{"input": TEXT}` gets no piece through before the end: what it wrote is then the input.
    """

    def __init__(self) -> None:
        self._unread = ""
        self._is_text = False
        self._is_over = False

    def push(self, arguments: str) -> str:
        if self._is_over:
            return ""
        self._unread += arguments
        if not self._is_text:
            begin = _BEGIN.match(self._unread)
            if begin is None:
                return ""
            self._is_text, self._unread = True, self._unread[begin.end() :]
        return self._text()

    def end(self) -> str:
        """What was held back. A call that was cut off has what was written of its input, and no more."""
        if self._is_text or self._is_over:
            return ""
        self._is_over = True
        return _whole_input(self._unread)

    def _text(self) -> str:
        known = _CHARACTERS.match(self._unread)
        assert known is not None, "it matches nothing, too"
        self._unread = self._unread[known.end() :]
        self._is_over = self._unread.startswith('"')
        # Not strict: a line break that should be an escape is what the model wrote all the same.
        text: str = json.loads(f'"{known[0]}"', strict=False)
        # Half of a surrogate pair is no text that could be sent.
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def input_of(arguments: str) -> str:
    """Of a call that is over."""
    reader = InputReader()
    return reader.push(arguments) + reader.end()


def _whole_input(arguments: str) -> str:
    """Of a call in another form: the only text in it, else everything as it was written."""
    try:
        written = msgspec.json.decode(arguments or "{}")
    except (msgspec.DecodeError, RecursionError):
        return arguments
    match written:
        case {"input": str(text)}:
            return text
        case dict():
            texts = [value for value in written.values() if isinstance(value, str)]
            return texts[0] if len(texts) == 1 else (arguments if written else "")
    return arguments


def _rules(form: object) -> str | None:
    match form:
        case {"type": "grammar", "grammar": {"syntax": str(syntax), "definition": str(definition)}}:
            return f"The input follows this {syntax} grammar:\n{definition}"
    return None

"""The plain text of a custom tool's call, to and from the `{"input": "…"}` in which the model writes it.

It writes no event. A piece may end anywhere: in an escape, or between the two halves of a surrogate pair.
"""

import re
from typing import Final

import msgspec

from control.dialects.decoding import json_of

_HEAD: Final = re.compile(r'\s*\{\s*"input"\s*:\s*"')
# The longest beginning that still may become a head; more white space than this is not a model's.
_HEAD_LIMIT: Final = 256
_ESCAPES: Final = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
# An escape that the end of the piece cuts matches nothing. `\\u` without four digits is no JSON; it stays as it is.
_UNIT: Final = re.compile(
    r"""(?P<plain>[^"\\]+|\\u(?![0-9a-fA-F]{0,3}\Z|[0-9a-fA-F]{4}))"""
    r"""|\\u(?P<hex>[0-9a-fA-F]{4})|\\(?P<escape>[^u])|(?P<end>")"""
)
_REPLACEMENT: Final = "\ufffd"


def arguments_of(written: object) -> str:
    """Of a call that was made earlier, as the model wrote them. An input that is no text is its JSON; none is empty."""
    text = written if isinstance(written, str) else "" if written is None else json_of(written)
    return json_of({"input": text})


def input_of(arguments: str) -> str:
    """Of a call that is over."""
    reader = CustomInput()
    return reader.feed(arguments) + reader.finish()


class CustomInput:
    """Give it the pieces of a call's arguments; it gives the text, as far as it is known. `finish` gives the rest.

    A model that did not write `{"input": TEXT}` gets no piece through before the end. Of a call that was cut off there
    is what was written of its text, and no more.
    """

    def __init__(self) -> None:
        self._raw: list[str] = []
        self._pending = ""
        self._high: str | None = None
        self._is_inside = False
        self._is_over = False

    def feed(self, piece: str) -> str:
        if not self._is_inside:
            self._raw.append(piece)
        if self._is_over:
            return ""
        self._pending += piece
        if not self._is_inside and not self._has_begun():
            return ""
        return self._decoded()

    def finish(self) -> str:
        if self._is_inside:
            rest, self._high = (_REPLACEMENT if self._high else ""), None
            return rest
        return _found_input("".join(self._raw))

    def _has_begun(self) -> bool:
        head = _HEAD.match(self._pending)
        if head is None:
            self._is_over = len(self._pending) > _HEAD_LIMIT
            return False
        self._is_inside = True
        self._pending = self._pending[head.end() :]
        return True

    def _decoded(self) -> str:
        text: list[str] = []
        at = 0
        while not self._is_over and (unit := _UNIT.match(self._pending, at)):
            at = unit.end()
            if unit["hex"]:
                text.append(self._code_unit(unit["hex"]))
                continue
            if self._high:
                text.append(_REPLACEMENT)
                self._high = None
            if unit["end"]:
                self._is_over = True
            else:
                text.append(unit["plain"] or _ESCAPES.get(unit["escape"], unit["escape"]))
        self._pending = self._pending[at:]
        return "".join(text)

    def _code_unit(self, digits: str) -> str:
        code = int(digits, 16)
        high, self._high = self._high, None
        if high and 0xDC00 <= code <= 0xDFFF:
            return (bytes.fromhex(high) + bytes.fromhex(digits)).decode("utf-16-be")
        lost = _REPLACEMENT if high else ""
        if 0xD800 <= code <= 0xDBFF:
            self._high = digits
            return lost
        return lost + (_REPLACEMENT if 0xDC00 <= code <= 0xDFFF else chr(code))


def _found_input(arguments: str) -> str:
    """Of a call in another form: its `input`, else the only text in it, else everything as it was written."""
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

"""Tool calls in the XML manner of Qwen's coders, read as they are written; their arguments become a JSON object.

Format: `<function=NAME><parameter=KEY>VALUE</parameter></function>`, with newlines that belong to the tags. It follows
mlx-lm's `qwen3_coder`, and asks it for the values that are no strings: they need their schema, and their end.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from engine.text.call_reader import StreamedCalls
from engine.text.marked import num_withheld
from engine.text.tool_calls import PARSER_ERRORS, ToolParser, parse_calls

_FUNCTION: Final = "<function="
_PARAMETER: Final = "<parameter="
_FUNCTION_END: Final = "</function>"
_PARAMETER_END: Final = "</parameter>"
_NAME: Final = re.compile(r"\s*([^\s<>]+)")
_NULL: Final = "null"

# Where the reader is. "outside" calls; a "nameless" parameter is not read.
Place = Literal["outside", "function name", "inside", "parameter name", "value", "nameless"]


class XmlCalls(StreamedCalls):
    """One function may follow another."""

    def __init__(self, parser: ToolParser, tools: Sequence[dict[str, Any]]) -> None:
        super().__init__(parser, tools)
        self._place: Place = "outside"
        self._function = ""
        self._num_parameters = 0
        self._parameter = ""
        self._value = ""  # what was read of it and not said yet
        self._is_at_start = True  # nothing was read of it yet
        self._is_text = True  # whatever it looks like, "null" apart, which is none
        self._is_string = False  # as is certain now

    @property
    def in_value(self) -> bool:
        return self.has_begun and self._place in ("value", "nameless")

    def _step(self) -> bool:
        match self._place:
            case "outside":
                return self._go_to(_FUNCTION, "function name")
            case "function name" | "parameter name":
                return self._read_name()
            case "inside":
                return self._read_tag()
            case "value":
                return self._read_value()
            case "nameless":
                return self._go_to(_PARAMETER_END, "inside")

    def _close(self) -> None:
        if self._place in ("inside", "parameter name"):
            self._say("}" if self._num_parameters else "{}")

    def _go_to(self, tag: str, place: Place) -> bool:
        """Skip what stands before the tag."""
        at = self._unread.find(tag)
        if at < 0:
            self._unread = self._unread[len(self._unread) - num_withheld(self._unread, (tag,)) :]
            return False
        self._unread = self._unread[at + len(tag) :]
        self._place = place
        return True

    def _read_tag(self) -> bool:
        parameter, end = self._unread.find(_PARAMETER), self._unread.find(_FUNCTION_END)
        if end < 0 or 0 <= parameter < end:
            return self._go_to(_PARAMETER, "parameter name") if parameter >= 0 else self._wait_for_tag()
        self._go_to(_FUNCTION_END, "outside")
        self._say("}" if self._num_parameters else "{}")
        self._end_call()
        return True

    def _wait_for_tag(self) -> bool:
        withheld = num_withheld(self._unread, (_PARAMETER, _FUNCTION_END))
        self._unread = self._unread[len(self._unread) - withheld :]
        return False

    def _read_name(self) -> bool:
        """The name is known when something stands behind it: ">", or what a model writes when it forgets that."""
        name = _NAME.match(self._unread)
        if name is None:
            return self._read_no_name()
        if name.end() == len(self._unread):
            return False
        self._unread = self._unread[name.end() :].removeprefix(">")
        if self._place == "function name":
            self._function, self._num_parameters, self._place = name[1], 0, "inside"
            self._begin_call(name[1])
        else:
            self._parameter, self._place = name[1], "value"
            self._value, self._is_at_start, self._is_string = "", True, False
            self._is_text = self._takes_text(name[1])
            self._say(("{" if self._num_parameters == 0 else ", ") + json.dumps(name[1], ensure_ascii=False) + ": ")
            self._num_parameters += 1
        return True

    def _read_no_name(self) -> bool:
        if not self._unread.strip():
            return False
        self._is_lost = self._place == "function name"
        self._place = "nameless"
        return not self._is_lost

    def _read_value(self) -> bool:
        at = self._unread.find(_PARAMETER_END)
        if at < 0:
            self._read_piece(len(self._unread) - num_withheld(self._unread, (_PARAMETER_END,)))
            return False
        self._read_piece(at)
        self._unread = self._unread[len(_PARAMETER_END) :]
        self._place = "inside"
        value, self._value = self._value.removesuffix("\n"), ""
        self._say(_within(value) + '"' if self._is_string else self._converted(value))
        return True

    def _read_piece(self, num_chars: int) -> None:
        piece, self._unread = self._unread[:num_chars], self._unread[num_chars:]
        if piece and self._is_at_start:
            piece, self._is_at_start = piece.removeprefix("\n"), False
        self._value += piece
        said = self._value.removesuffix("\n")  # the last one may yet belong to the end tag
        if self._is_text and not self._is_string and not _NULL.startswith(said.lower()):
            self._is_string = True
            self._say('"')
        if self._is_string:
            self._value = self._value[len(said) :]
            self._say(_within(said))

    def _takes_text(self, parameter: str) -> bool:
        for tool in self._tools:
            if tool["function"]["name"] == self._function:
                properties = tool["function"]["parameters"].get("properties")
                schema = properties.get(parameter) if isinstance(properties, dict) else None
                return not schema or (isinstance(schema, dict) and schema.get("type") == "string")
        return True

    def _converted(self, value: str) -> str:
        """As mlx-lm converts it; text that its type forbids stays text, for the client to refuse."""
        call = f"{_FUNCTION}{self._function}>{_PARAMETER}{self._parameter}>\n{value}\n{_PARAMETER_END}{_FUNCTION_END}"
        calls = parse_calls(call, self._parser, self._tools)
        try:
            return json.dumps(json.loads(calls[0].arguments)[self._parameter], ensure_ascii=False)
        except PARSER_ERRORS:
            return json.dumps(value, ensure_ascii=False)


def _within(text: str) -> str:
    """As it stands within the quotes of a JSON string."""
    return json.dumps(text, ensure_ascii=False)[1:-1]

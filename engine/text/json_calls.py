"""Tool calls whose arguments are JSON, read as they are written: objects with a name, and names with arguments behind.

Formats: `{"name": NAME, "arguments": {...}}` (Hermes, Qwen) and `NAME[ARGS]{...}` (Mistral). Anything else that
mlx-lm's parsers take, such as a list of calls, is read by them at the end.
"""

import json
import re
from collections.abc import Sequence
from typing import Any, Final, Literal

from engine.text.call_reader import StreamedCalls
from engine.text.json_reader import JsonReader
from engine.text.tool_calls import ToolParser

_SPACE: Final = " \t\r\n"
_ARGUMENT_KEYS: Final = ("arguments", "parameters")
_HEADER_END: Final = "[ARGS]"
_NAME_AT_END: Final = re.compile(r"([\w-]+)\s*$")


class ArgumentsReader(JsonReader):
    """The arguments of one call. An object passes as it comes; anything else waits until it is whole.

    JSON in a string is unpacked; null and an empty string are no arguments; other values stay what they are.
    """

    def __init__(self) -> None:
        super().__init__()
        self._held: str | None = None
        self.has_begun = False

    def push(self, text: str) -> str:
        if text and not self.has_begun:
            self.has_begun = True
            self._held = None if text[0] == "{" else ""
        passed = super().push(text)
        if self._held is None:
            return passed
        self._held += passed
        return self._unpacked(self._held) if self.is_complete else ""

    def _unpacked(self, written: str) -> str:
        value = json.loads(written)
        if value is None:
            return "{}"
        if not isinstance(value, str):
            return written
        if not value.strip():
            return "{}"
        inner = JsonReader()
        passed = inner.push(value.strip() + " ")
        self.is_broken = not inner.is_complete or bool(inner.rest.strip())
        return passed


class JsonObjectCalls(StreamedCalls):
    """Keys come in any order; of repeated ones the first counts. One object may follow another."""

    def __init__(self, parser: ToolParser, tools: Sequence[dict[str, Any]]) -> None:
        super().__init__(parser, tools)
        self._start()

    @property
    def in_value(self) -> bool:
        return self.has_begun and self._reader is not None and self._reader.in_string

    def _start(self) -> None:
        self._expected: Literal["object", "first key", "key", "colon", "value", "next", "nothing"] = "object"
        self._reader: JsonReader | None = None
        self._reading: Literal["key", "name", "arguments", "other"] = "other"
        self._read = ""  # of a key or a name
        self._key = ""
        self._arguments: str | None = None  # before the name is known; afterwards empty

    def _step(self) -> bool:
        if self._reader is not None:
            return self._read_on(self._reader)
        self._unread = self._unread.lstrip(_SPACE)
        if not self._unread:
            return False
        match self._expected, self._unread[0]:
            case "object", "{":
                self._expected = "first key"
            case (("key" | "first key"), '"'):
                return self._begin_to_read("key", JsonReader())
            case (("next" | "first key"), "}"):
                self._object_is_over()
            case "next", ",":
                self._expected = "key"
            case "colon", ":":
                self._expected = "value"
            case "value", _:
                return self._begin_value()
            case "nothing", "{":
                self._end_call()
                self._start()
                return True
            case _:
                self._is_lost = True
                return False
        self._unread = self._unread[1:]
        return True

    def _begin_value(self) -> bool:
        if self._key == "name" and not self._is_open:
            return self._begin_to_read("name", JsonReader())
        if self._key in _ARGUMENT_KEYS and self._arguments is None:
            self._arguments = ""
            return self._begin_to_read("arguments", ArgumentsReader())
        return self._begin_to_read("other", JsonReader())

    def _begin_to_read(self, what: Literal["key", "name", "arguments", "other"], reader: JsonReader) -> bool:
        self._reading, self._reader, self._read = what, reader, ""
        return True

    def _read_on(self, reader: JsonReader) -> bool:
        passed, self._unread = reader.push(self._unread), ""
        if self._reading in ("key", "name"):
            self._read += passed
        elif self._reading == "arguments":
            self._pass_arguments(passed)
        self._is_lost = reader.is_broken
        if reader.is_broken or not reader.is_complete:
            return False
        self._unread, self._reader = reader.rest, None
        if self._reading == "key":
            self._key, self._expected = json.loads(self._read), "colon"
        else:
            self._expected = "next"
        if self._reading == "name":
            self._name_is_known(json.loads(self._read))
        return not self._is_lost

    def _pass_arguments(self, text: str) -> None:
        if self._is_open:
            self._say(text)
        else:
            self._arguments = (self._arguments or "") + text

    def _name_is_known(self, name: Any) -> None:
        if not isinstance(name, str) or not name:
            self._is_lost = True
            return
        self._begin_call(name)
        self._say(self._arguments or "")

    def _object_is_over(self) -> None:
        self._expected = "nothing"
        self._is_lost = not self._is_open
        if self._is_open and self._arguments is None:
            self._say("{}")


class NamedArgumentsCalls(StreamedCalls):
    """What stands between two calls is not read."""

    def __init__(self, parser: ToolParser, tools: Sequence[dict[str, Any]]) -> None:
        super().__init__(parser, tools)
        self._reader: ArgumentsReader | None = None

    @property
    def in_value(self) -> bool:
        return self._reader is not None and self._reader.in_string

    def _step(self) -> bool:
        return self._read_name() if self._reader is None else self._read_arguments(self._reader)

    def _read_name(self) -> bool:
        self._is_lost = not self.has_begun and self._unread.lstrip().startswith("[")
        at = self._unread.find(_HEADER_END)
        if at < 0 or self._is_lost:
            return False
        name = _NAME_AT_END.search(self._unread[:at])
        self._unread = self._unread[at + len(_HEADER_END) :]
        if name is not None:
            self._begin_call(name[1])
            self._reader = ArgumentsReader()
        return True

    def _read_arguments(self, reader: ArgumentsReader) -> bool:
        text = self._unread if reader.has_begun else self._unread.lstrip()
        passed, self._unread = reader.push(text), ""
        self._say(passed)
        self._is_lost = reader.is_broken
        if reader.is_broken or not reader.is_complete:
            return False
        self._unread, self._reader = reader.rest, None
        self._end_call()
        return True

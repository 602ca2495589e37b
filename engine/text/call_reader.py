"""Reads the text between the markers of a tool call, and says what it is certain of: a name, a piece of arguments.

It finds no calls in running text (`engine.text.markup`), and knows no format but "whole, at the end": that is for the
families whose calls cannot be read piece by piece (`json_calls` and `xml_calls` can).

Rules that a client can rely on
- Until a name is known, the text may turn out to be no call. From then on it is one, whatever follows. Within a thought
  only a whole call is one.
- The pieces of the arguments joined are JSON when the call is complete. In a call that goes wrong or is cut off they
  are the beginning of it: such a call is ended, never completed, so that nobody acts on half a file.
- What else stands between the markers of a call that has begun is not shown.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.text.tool_calls import ToolParser, parse_calls


@dataclass(frozen=True, slots=True)
class CallBegins:
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """A piece of a JSON object as text."""

    text: str


@dataclass(frozen=True, slots=True)
class CallEnds:
    pass


CallPiece = CallBegins | CallArguments | CallEnds


class CallReader:
    """Reads everything at the end, through mlx-lm's parser of the model. `tools` give the types of arguments."""

    def __init__(self, parser: ToolParser, tools: Sequence[dict[str, Any]]) -> None:
        self.has_begun = False
        self._parser = parser
        self._tools = tools

    @property
    def in_value(self) -> bool:
        """A marker that comes now is a part of an argument."""
        return False

    def push(self, text: str) -> list[CallPiece]:
        return []

    def end(self, text: str, *, is_whole: bool) -> list[CallPiece]:
        """No more text comes. `text` is all of it, if no call has begun; `is_whole`: it was not cut off."""
        pieces: list[CallPiece] = []
        for call in parse_calls(text, self._parser, self._tools) if is_whole else ():
            pieces += (CallBegins(call.name), CallArguments(call.arguments), CallEnds())
        self.has_begun = bool(pieces)
        return pieces


class StreamedCalls(CallReader):
    """What the readers of single formats have in common: text that was not read yet, and the pieces that come of it.

    Text that is not in the format, before a call has begun, is left to mlx-lm's parser.
    """

    def __init__(self, parser: ToolParser, tools: Sequence[dict[str, Any]]) -> None:
        super().__init__(parser, tools)
        self._unread = ""
        self._is_lost = False  # the rest can't be read
        self._is_open = False  # a call has begun and not ended
        self._pieces: list[CallPiece] = []

    def push(self, text: str) -> list[CallPiece]:
        if not self._is_lost:
            self._unread += text
            while not self._is_lost and self._step():
                pass
        return self._taken()

    def end(self, text: str, *, is_whole: bool) -> list[CallPiece]:
        if not self.has_begun:
            return super().end(text, is_whole=is_whole)
        if self._is_open:
            if is_whole:
                self._close()
            self._end_call()
        return self._taken()

    def _step(self) -> bool:
        """Read on; False when more text is needed."""
        raise NotImplementedError  # each family has its own

    def _close(self) -> None:
        """The model ended the call: complete the arguments, where only the end of the format is missing."""

    def _begin_call(self, name: str) -> None:
        self.has_begun = self._is_open = True
        self._pieces.append(CallBegins(name))

    def _say(self, arguments: str) -> None:
        if arguments:
            self._pieces.append(CallArguments(arguments))

    def _end_call(self) -> None:
        self._is_open = False
        self._pieces.append(CallEnds())

    def _taken(self) -> list[CallPiece]:
        pieces, self._pieces = self._pieces, []
        return pieces

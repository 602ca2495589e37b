"""Reads one JSON value that arrives in pieces, and passes it on as soon as it is certain to be JSON.

It builds no objects. What it passes on is always the beginning of a valid value, two repairs included: control
characters in strings are escaped, and half of a surrogate pair, which is no text, becomes U+FFFD.
"""

import json
import re
from typing import Final, Literal

_SPACE: Final = re.compile(r"[ \t\r\n]+")
_PLAIN: Final = re.compile(r'[^"\\\x00-\x1f]+')
_WORD: Final = re.compile(r"[-+.0-9A-Za-z]+")
_LITERAL: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|true|false|null")
_UNICODE: Final = re.compile(r"\\u[0-9a-fA-F]{4}")
_HIGH: Final = re.compile(r"\\u[dD][89abAB][0-9a-fA-F]{2}")
_LOW: Final = re.compile(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}")
_REPLACEMENT: Final = "\\ufffd"
_CLOSERS: Final = {"{": "}", "[": "]"}

# What may come next outside strings. "first" and "first key" may also be the end of their empty container.
Expected = Literal["value", "first", "key", "first key", "colon", "next"]


class JsonReader:
    """`rest` is what stands behind the value when it `is_complete`. After a mistake `is_broken`, and nothing comes."""

    def __init__(self) -> None:
        self.is_complete = False
        self.is_broken = False
        self.in_string = False
        self.rest = ""
        self._closers: list[str] = []
        self._expected: Expected = "value"

    def push(self, text: str) -> str:
        """Take a piece; return what is certain now. A number at the very end waits for what follows it."""
        self.rest += text
        passed: list[str] = []
        while self.rest and not self.is_complete and not self.is_broken:
            lexeme = self._next_of_string() if self.in_string else self._next()
            if lexeme is None:
                break
            passed.append(lexeme)
        return "".join(passed)

    def _take(self, num_chars: int) -> str:
        taken, self.rest = self.rest[:num_chars], self.rest[num_chars:]
        return taken

    def _break(self) -> str | None:
        self.is_broken = True
        return None

    def _next(self) -> str | None:
        space = _SPACE.match(self.rest)
        if space:
            return self._take(space.end())
        char = self.rest[0]
        if self._closers and char == self._closers[-1] and self._expected in ("first", "first key", "next"):
            self._closers.pop()
            self._value_is_over()
        elif self._expected == "next" and char == ",":
            self._expected = "key" if self._closers[-1] == "}" else "value"
        elif self._expected == "colon" and char == ":":
            self._expected = "value"
        elif char == '"' and self._expected not in ("colon", "next"):
            self.in_string = True
        elif self._expected in ("value", "first"):
            if char not in _CLOSERS:
                return self._literal()
            self._closers.append(_CLOSERS[char])
            self._expected = "first key" if char == "{" else "first"
        else:
            return self._break()
        return self._take(1)

    def _literal(self) -> str | None:
        word = _WORD.match(self.rest)
        if word is None:
            return self._break()
        if word.end() == len(self.rest):
            return None
        if not _LITERAL.fullmatch(word[0]):
            return self._break()
        self._value_is_over()
        return self._take(word.end())

    def _next_of_string(self) -> str | None:
        plain = _PLAIN.match(self.rest)
        if plain:
            return self._take(plain.end())
        char = self.rest[0]
        if char == "\\":
            return self._escape()
        if char != '"':
            return json.dumps(self._take(1))[1:-1]
        self.in_string = False
        if self._expected in ("key", "first key"):
            self._expected = "colon"
        else:
            self._value_is_over()
        return self._take(1)

    def _escape(self) -> str | None:
        if len(self.rest) < 2:
            return None
        if self.rest[1] in '"\\/bfnrt':
            return self._take(2)
        if not _could_be(_UNICODE, self.rest[:6]):
            return self._break()
        if len(self.rest) < 6:
            return None
        if _HIGH.match(self.rest):
            return self._pair()
        escape = self._take(6)
        return _REPLACEMENT if _LOW.match(escape) else escape

    def _pair(self) -> str | None:
        other = self.rest[6:12]
        if _LOW.match(other):
            return self._take(12)
        if _could_be(_LOW, other):
            return None
        self._take(6)
        return _REPLACEMENT

    def _value_is_over(self) -> None:
        self._expected = "next"
        self.is_complete = not self._closers


def _could_be(escape: re.Pattern[str], beginning: str) -> bool:
    """Is this an escape of that kind, or the beginning of one?"""
    return escape.fullmatch(beginning + "\\udc00"[len(beginning) :]) is not None

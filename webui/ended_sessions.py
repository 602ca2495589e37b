"""Sessions that were ended before their time, kept in a small file so that no restart revives them.

It knows no cookies: a session is an id, and is forgotten when its cookie would have expired anyway.
"""

import time
from collections.abc import Callable
from typing import Protocol

import msgspec


class Shelf(Protocol):
    """Where the file lies: `webui.home.Home`."""

    def ended_sessions(self) -> bytes: ...

    def write_ended_sessions(self, content: bytes) -> None: ...


class EndedSessions:
    """Ids with the Unix time until which each must be remembered."""

    def __init__(self, shelf: Shelf, *, wall_s: Callable[[], float] = time.time) -> None:
        self._shelf = shelf
        self._wall_s = wall_s
        self._until_s = _decoded(shelf.ended_sessions())

    def __contains__(self, session_id: str) -> bool:
        return session_id in self._until_s

    def add(self, session_id: str, *, valid_s: float) -> None:
        """`session_id` is over; its cookie is valid for at most `valid_s` more."""
        now_s = self._wall_s()
        self._until_s = {id_: until_s for id_, until_s in self._until_s.items() if until_s > now_s}
        self._until_s[session_id] = now_s + valid_s
        self._shelf.write_ended_sessions(msgspec.json.encode(self._until_s))


def _decoded(content: bytes) -> dict[str, float]:
    try:
        return msgspec.json.decode(content, type=dict[str, float])
    except msgspec.MsgspecError:
        return {}

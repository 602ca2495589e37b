"""The conversations behind `previous_response_id`: in memory, bounded, and forgotten when nobody asks for them.

Nothing of it is ever written to disk, and nothing is found but by the key that it was kept for. It knows no HTTP, and
nothing of what an item means.

A conversation is a tuple of turns; one that goes on from another has its turns, and adds one. A turn that several
conversations share is kept, and counted, once.
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Final

import msgspec

from control.errors import UnknownResponse

# Beside a model of many GB; some hundred long sessions, or a few with many images.
LIMIT_BYTES: Final = 64 * 2**20
LIMIT_COUNT: Final = 4096
# A person who thinks longer than that sends the conversation again.
IDLE_S: Final = 3600.0
# What Python takes for a turn or a conversation, for an id with its entry, and for one more turn in a conversation.
TURN_BYTES: Final = 512
ID_BYTES: Final = 512
POINTER_BYTES: Final = 8


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """The items of one request or of one answer, as a client that sends all of them again would send them.

    They are kept as JSON: as objects they would take many times as much. `ids` are an answer's, in order: only an
    answer's items can be referred to, since they alone have ids of ours.
    """

    encoded: bytes
    ids: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[dict[str, Any], ...]:
        """Decoded anew each time."""
        return tuple(msgspec.json.decode(self.encoded))

    @property
    def num_bytes(self) -> int:
        return len(self.encoded) + TURN_BYTES + ID_BYTES * len(self.ids)


Conversation = tuple[Turn, ...]


def turn(items: Iterable[dict[str, Any]], *, is_answer: bool = False) -> Turn:
    """That may take milliseconds for one with images."""
    kept = tuple(items)
    return Turn(msgspec.json.encode(kept), tuple(item["id"] for item in kept) if is_answer else ())


def entry_bytes(conversation: Conversation) -> int:
    """What keeping it takes beside its turns."""
    return TURN_BYTES + POINTER_BYTES * len(conversation)


@dataclass(slots=True)
class _Kept:
    conversation: Conversation
    used_at: float


@dataclass(frozen=True, slots=True)
class _Item:
    turn: Turn
    position: int
    response: "_Name"


Owner = int | str
"""Whoever asks: the id of a key."""
_Name = tuple[Owner, str]
"""Of a response, or of an item."""


class ResponseHistory:
    """May be used from any thread. The conversation that was not used for the longest time goes first."""

    def __init__(
        self,
        *,
        limit_bytes: int = LIMIT_BYTES,
        limit_count: int = LIMIT_COUNT,
        idle_s: float = IDLE_S,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._limit_bytes = limit_bytes
        self._limit_count = limit_count
        self._idle_s = idle_s
        self._monotonic = monotonic
        # Requests are parsed in threads, and answers end on the loop.
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Name, _Kept] = OrderedDict()
        self._users: Counter[Turn] = Counter()
        self._items: dict[_Name, _Item] = {}
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    @property
    def num_conversations(self) -> int:
        return len(self._kept)

    def of(self, owner: Owner) -> "OwnHistory":
        return OwnHistory(self, owner)

    def put(self, owner: Owner, response_id: str, conversation: Conversation) -> None:
        """One that is larger than all there is room for is not kept."""
        name = (owner, response_id)
        if sum(each.num_bytes for each in conversation) + entry_bytes(conversation) > self._limit_bytes:
            return
        with self._lock:
            self._forget(name)
            self._kept[name] = _Kept(conversation, self._monotonic())
            self._num_bytes += entry_bytes(conversation)
            for each in conversation:
                self._users[each] += 1
                if self._users[each] == 1:
                    self._num_bytes += each.num_bytes
                    self._items.update(((owner, id_), _Item(each, i, name)) for i, id_ in enumerate(each.ids))
            self._shrink()

    def get(self, owner: Owner, response_id: str) -> Conversation:
        """Raises UnknownResponse for one that was never kept, or no longer is."""
        with self._lock:
            self._shrink()
            kept = self._kept.get((owner, response_id))
            if kept is None:
                raise UnknownResponse(response_id)
            self._use((owner, response_id))
            return kept.conversation

    def item(self, owner: Owner, item_id: str) -> dict[str, Any] | None:
        """An output item of an answer that is still here."""
        with self._lock:
            self._shrink()
            found = self._items.get((owner, item_id))
            if found is None:
                return None
            self._use(found.response)
            return found.turn.items[found.position]

    def _use(self, response: _Name) -> None:
        if response in self._kept:
            self._kept[response].used_at = self._monotonic()
            self._kept.move_to_end(response)

    def _shrink(self) -> None:
        expired_before = self._monotonic() - self._idle_s
        while self._kept:
            name, oldest = next(iter(self._kept.items()))
            is_over = self._num_bytes > self._limit_bytes or len(self._kept) > self._limit_count
            if not is_over and oldest.used_at >= expired_before:
                return
            self._forget(name)

    def _forget(self, response: _Name) -> None:
        kept = self._kept.pop(response, None)
        if kept is None:
            return
        self._num_bytes -= entry_bytes(kept.conversation)
        for each in kept.conversation:
            self._users[each] -= 1
            if not self._users[each]:
                del self._users[each]
                self._num_bytes -= each.num_bytes
                for id_ in each.ids:
                    self._items.pop((response[0], id_), None)


@dataclass(frozen=True, slots=True)
class OwnHistory:
    """What one key can find."""

    history: ResponseHistory
    owner: Owner

    def put(self, response_id: str, conversation: Conversation) -> None:
        self.history.put(self.owner, response_id, conversation)

    def get(self, response_id: str) -> Conversation:
        """Raises UnknownResponse."""
        return self.history.get(self.owner, response_id)

    def item(self, item_id: str) -> dict[str, Any] | None:
        return self.history.item(self.owner, item_id)

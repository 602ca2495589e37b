"""The conversations behind `previous_response_id`: in memory, bounded, and forgotten when nobody asks for them.

Nothing of it is ever written to disk. It knows no HTTP and no item: what an answer was, others say.

A conversation is a tuple of turns; one that goes on from another has its turns, and adds one. A turn that several
conversations share is kept, and counted, once.
"""

import threading
import time
from collections import Counter, OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from control.errors import UnknownResponse
from engine import wire

# Beside a model of many GB; some hundred long sessions, or a few with many images.
LIMIT_BYTES: Final = 64 * 2**20
LIMIT_COUNT: Final = 4096
# A person who thinks longer than that sends the conversation again.
IDLE_S: Final = 3600.0


@dataclass(frozen=True, slots=True, eq=False)
class Turn:
    """What one request added, its answer last. `items` are the answer's output items by their id."""

    messages: tuple[wire.Message, ...]
    items: dict[str, dict[str, Any]] = field(default_factory=dict)
    num_bytes: int = 0


Conversation = tuple[Turn, ...]


def turn(messages: tuple[wire.Message, ...], items: dict[str, dict[str, Any]] | None = None) -> Turn:
    """Its size is that of its JSON. That may take milliseconds for one with images."""
    items = items or {}
    return Turn(messages, items, len(msgspec.json.encode(messages)) + len(msgspec.json.encode(items)))


@dataclass(slots=True)
class _Kept:
    conversation: Conversation
    used_at: float


@dataclass(frozen=True, slots=True)
class _Item:
    item: dict[str, Any]
    response_id: str


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
        self._kept: OrderedDict[str, _Kept] = OrderedDict()
        self._users: Counter[Turn] = Counter()
        self._items: dict[str, _Item] = {}
        self._num_bytes = 0

    @property
    def num_bytes(self) -> int:
        return self._num_bytes

    @property
    def num_conversations(self) -> int:
        return len(self._kept)

    def put(self, response_id: str, conversation: Conversation) -> None:
        """One that is larger than all there is room for is not kept."""
        if sum(each.num_bytes for each in conversation) > self._limit_bytes:
            return
        with self._lock:
            self._forget(response_id)
            self._kept[response_id] = _Kept(conversation, self._monotonic())
            for each in conversation:
                self._users[each] += 1
                if self._users[each] == 1:
                    self._num_bytes += each.num_bytes
                    self._items.update((item_id, _Item(item, response_id)) for item_id, item in each.items.items())
            self._shrink()

    def get(self, response_id: str) -> Conversation:
        """Raises UnknownResponse for one that was never kept, or no longer is."""
        with self._lock:
            self._shrink()
            kept = self._kept.get(response_id)
            if kept is None:
                raise UnknownResponse(response_id)
            self._use(response_id)
            return kept.conversation

    def item(self, item_id: str) -> dict[str, Any] | None:
        """An output item of an answer that is still here."""
        with self._lock:
            self._shrink()
            found = self._items.get(item_id)
            if found is None:
                return None
            self._use(found.response_id)
            return found.item

    def _use(self, response_id: str) -> None:
        if response_id in self._kept:
            self._kept[response_id].used_at = self._monotonic()
            self._kept.move_to_end(response_id)

    def _shrink(self) -> None:
        expired_before = self._monotonic() - self._idle_s
        while self._kept:
            response_id, oldest = next(iter(self._kept.items()))
            is_over = self._num_bytes > self._limit_bytes or len(self._kept) > self._limit_count
            if not is_over and oldest.used_at >= expired_before:
                return
            self._forget(response_id)

    def _forget(self, response_id: str) -> None:
        kept = self._kept.pop(response_id, None)
        for each in kept.conversation if kept is not None else ():
            self._users[each] -= 1
            if not self._users[each]:
                del self._users[each]
                self._num_bytes -= each.num_bytes
                for item_id in each.items:
                    self._items.pop(item_id, None)

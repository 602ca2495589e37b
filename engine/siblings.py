"""Who waits because another request is computing a prefix that both share.

It starts and computes nothing: it arms the boundary where the one that computes must take a snapshot, and the waiting
ones go on once the prefix is in the cache, or once the other left without it. Lengths in tokens.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from engine.blocks import BLOCK_TOKENS, floor_to_block
from engine.request import Request

SMALLEST_GAIN_TOKENS: Final = 64  # what waiting must save


class Siblings:
    """`restorable` tells how much of a request's input the cache holds; it is asked once until `prefix_changed`."""

    def __init__(self, *, restorable: Callable[[Request], int], needs_snapshots: bool) -> None:
        self._restorable = restorable
        self.needs_snapshots = needs_snapshots
        self.is_cache_on = True
        self._restorable_lens: dict[Request, int] = {}
        self._shared_lens: dict[Request, dict[Request, int]] = {}  # by who computes, then by who waits
        self._producers: dict[Request, Request] = {}  # by who waits
        self._have_waited: set[Request] = set()
        self.prefix_waits = 0
        """How many requests have waited so far."""

    @property
    def num_waiting(self) -> int:
        return len(self._producers)

    def is_waiting(self, request: Request) -> bool:
        return request in self._producers

    def waiting_for(self, producer: Request) -> list[Request]:
        return [request for request, computing in self._producers.items() if computing is producer]

    def restorable_len(self, request: Request) -> int:
        known = self._restorable_lens.get(request)
        if known is None:
            known = self._restorable_lens[request] = self._restorable(request)
        return known

    def prefix_changed(self) -> None:
        self._restorable_lens.clear()

    def stopped_prefilling(self, producer: Request) -> None:
        """It joined, left or was suspended: nobody waits for it any more."""
        self._shared_lens.pop(producer, None)
        for request in self.waiting_for(producer):
            del self._producers[request]

    def stopped_waiting(self, request: Request) -> None:
        """It left the line, or changed while it was not in it."""
        self._producers.pop(request, None)
        self._restorable_lens.pop(request, None)
        for shared_lens in self._shared_lens.values():
            shared_lens.pop(request, None)

    def forget(self, request: Request) -> None:
        """It left the engine."""
        self.stopped_prefilling(request)
        self.stopped_waiting(request)
        self._have_waited.discard(request)

    def sort_out(
        self, line: Iterable[Request], prefilling: Sequence[Request], *, is_slot_free: bool
    ) -> Iterable[Request]:
        """Arm boundaries for the `line`; return those of it that may start now as far as prefixes go.

        Without a free slot nobody waits for a prefix, but what they will want is armed all the same. Without a cache
        there is nothing to wait for.
        """
        self._producers.clear()
        if not prefilling or not self.is_cache_on:
            return line
        free = []
        for request in line:
            producer = self._producer_for(request, prefilling)
            if producer is None or not is_slot_free:
                free.append(request)
                continue
            self._producers[request] = producer
            if request not in self._have_waited:
                self._have_waited.add(request)
                self.prefix_waits += 1
        return free

    def _producer_for(self, request: Request, prefilling: Sequence[Request]) -> Request | None:
        best, best_len = None, 0
        for producer in prefilling:
            shared_len = self._shared_len(request, producer)
            if shared_len > max(best_len, producer.prefilled_len):
                best, best_len = producer, shared_len
        if best is None or best_len < self.restorable_len(request) + SMALLEST_GAIN_TOKENS:
            return None
        if self.needs_snapshots:
            best.boundaries.setdefault(best_len, "sibling")
        return best

    def _shared_len(self, request: Request, producer: Request) -> int:
        """How much of its input `request` could restore of what `producer` prefills."""
        known = self._shared_lens.setdefault(producer, {})
        shared_len = known.get(request)
        if shared_len is None:
            common_len = request.blocks.common_blocks(producer.blocks) * BLOCK_TOKENS
            shared_len = floor_to_block(min(common_len, request.input_len - 1, producer.input_len - 1))
            known[request] = shared_len
        return shared_len

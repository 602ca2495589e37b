"""How much of the memory pool a request takes, and how much more it may take while it grows.

It holds no tensor and orders nobody: `scheduler.py` asks, and rows are as long as `Request.room_len` says.
"""

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from engine.request import Request
from engine.wire import MemoryPlan

# A row is copied when it grows. Growing by an eighth of its length keeps that below one copy in 256 tokens while the
# tail that is not used yet stays below 12.5%, or 256 tokens. Copying a 60k row takes 9.6 ms on an H200.
SMALLEST_GROWTH_TOKENS = 256
LARGEST_GROWTH_TOKENS = 4096


def growth_tokens(length: int) -> int:
    """By how many tokens a row of `length` tokens grows: a power of two from 256 to 4096."""
    growth = SMALLEST_GROWTH_TOKENS
    while growth < LARGEST_GROWTH_TOKENS and growth * 8 < length:
        growth *= 2
    return growth


def first_room(prompt_len: int, max_tokens: int) -> int:
    """Tokens that a row has room for when it starts, so that prefilling never copies it."""
    return prompt_len + min(max_tokens, growth_tokens(prompt_len))


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """The part of the memory plan that running requests share. Bytes.

    What a request may generate beyond its room is not reserved: most stop early, and reserving for the longest answer
    would leave the machine empty. So a row grows as long as the pool has anything left, and by no more than that.
    """

    pool_bytes: int
    kv_bytes_per_token: int
    state_bytes_per_sequence: int

    @classmethod
    def of(cls, plan: MemoryPlan) -> "MemoryPool":
        return cls(
            pool_bytes=plan.pool_bytes,
            kv_bytes_per_token=plan.kv_bytes_per_token,
            state_bytes_per_sequence=plan.state_bytes_per_sequence,
        )

    @property
    def largest_room(self) -> int:
        """Tokens of the longest sequence that the pool holds, alone."""
        return self._tokens_in(self.pool_bytes - self.state_bytes_per_sequence)

    def room_of(self, request: Request) -> int:
        """Tokens that the request's row has room for when it starts; no more than its prompt if it can never run."""
        return min(first_room(request.prompt_len, request.max_tokens), self.largest_room)

    def bytes_of(self, room_len: int) -> int:
        return self.state_bytes_per_sequence + room_len * self.kv_bytes_per_token

    def used_bytes(self, running: Iterable[Request]) -> int:
        return sum(self.bytes_of(request.room_len) for request in running)

    def growth_of(self, request: Request, running: Iterable[Request]) -> int:
        """By how many tokens the full row of `request`, one of `running`, grows now; 0 when nothing is left."""
        most = request.prompt_len + request.max_tokens - request.room_len
        left = self._tokens_in(self.pool_bytes - self.used_bytes(running))
        return min(growth_tokens(request.room_len), most, left)

    def _tokens_in(self, num_bytes: int) -> int:
        if num_bytes < 0:
            return 0
        return num_bytes // self.kv_bytes_per_token if self.kv_bytes_per_token else sys.maxsize


BOUNDLESS = MemoryPool(pool_bytes=sys.maxsize, kv_bytes_per_token=0, state_bytes_per_sequence=0)

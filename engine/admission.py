"""How much of the memory pool a request takes, and whether it may take it now.

It holds no tensor and orders nobody: `scheduler.py` asks, and the rows are as long as `growth_tokens` says.
"""

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


def reserved_tokens(prompt_len: int, max_tokens: int) -> int:
    """Tokens that a row has room for when it starts, so that prefilling never copies it."""
    return prompt_len + min(max_tokens, growth_tokens(prompt_len))


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """The part of the memory plan that running requests share. Bytes.

    What a request may generate beyond its room is not reserved: most stop early, and reserving for the longest answer
    would leave the machine empty.
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

    def need_bytes(self, request: Request) -> int:
        """What the request holds now or will hold before its first growth, whichever is more."""
        room = reserved_tokens(request.prompt_len, request.max_tokens)
        length = request.prompt_len + len(request.tokens)
        if length > room:
            room += -(-(length - room) // growth_tokens(length)) * growth_tokens(length)
        return self.state_bytes_per_sequence + room * self.kv_bytes_per_token

    def used_bytes(self, running: Iterable[Request]) -> int:
        return sum(self.need_bytes(request) for request in running)

    def fits_beside(self, request: Request, running: Iterable[Request]) -> bool:
        return self.used_bytes(running) + self.need_bytes(request) <= self.pool_bytes

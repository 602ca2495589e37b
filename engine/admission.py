"""How much of the memory pool a request takes, and how much more it may take while it grows.

It holds no tensor and orders nobody: `scheduler.py` asks, and rows are as long as `Request.room_len` says.
"""

import sys
from collections.abc import Iterable, Sequence
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


def first_room(input_len: int, max_tokens: int) -> int:
    """Tokens that a row has room for when it starts, so that prefilling never copies it.

    A long row's is a multiple of half its growth: an agent's next turn mostly wants buffers of the very sizes that the
    one before let go of, and MLX hands out a kept buffer again only for the same size. A device takes long to give
    large new ones.
    """
    growth = growth_tokens(input_len)
    if growth == SMALLEST_GROWTH_TOKENS:
        return input_len + min(max_tokens, growth)
    step = growth // 2
    wanted = input_len + min(max_tokens, step)
    return -(-wanted // step) * step


@dataclass(frozen=True, slots=True)
class MemoryPool:
    """What running requests may take together: of the memory plan, or less while other programs need it. Bytes.

    What a request may generate beyond its room is not reserved: most stop early, and reserving for the longest answer
    would leave the machine empty. So a row grows as long as the pool has anything left, and by no more than that.
    What the prefix cache holds does not count: it gives way to running requests.

    `is_padded`: the layout pads every row to the longest one, so each costs as much as that.
    """

    pool_bytes: int
    kv_bytes_per_token: int
    state_bytes_per_sequence: int
    is_padded: bool = False

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
        return self._tokens_in(self.pool_bytes - self._fixed_bytes)

    def can_hold(self, request: Request) -> bool:
        """Whether the request could run if it were alone."""
        return self.largest_room > request.input_len

    def room_of(self, request: Request) -> int:
        """Tokens that the row of a request that the pool can hold has room for when it starts."""
        return min(first_room(request.input_len, request.max_tokens - len(request.tokens)), self.largest_room)

    def bytes_of(self, room_len: int) -> int:
        return self._fixed_bytes + room_len * self.kv_bytes_per_token

    def used_bytes(self, running: Iterable[Request]) -> int:
        return self._bytes_of_all([request.room_len for request in running])

    def fits(self, room_len: int, *, beside: Iterable[Request]) -> bool:
        """Whether a row of `room_len` tokens fits beside those that run."""
        return self._bytes_of_all([*(request.room_len for request in beside), room_len]) <= self.pool_bytes

    def growth_of(self, request: Request, running: Sequence[Request]) -> int:
        """By how many tokens the full row of `request`, one of `running`, grows now; 0 when nothing is left."""
        wanted = min(growth_tokens(request.room_len), request.prompt_len + request.max_tokens - request.room_len)
        if self.is_padded:
            longest_room = self._tokens_in(self.pool_bytes // len(running) - self._fixed_bytes)
            return max(0, min(wanted, longest_room - request.room_len))
        return min(wanted, self._tokens_in(self.pool_bytes - self.used_bytes(running)))

    @property
    def _fixed_bytes(self) -> int:
        """Fixed state of one request: the live one, and one to resume from.

        While it is prefilled there is none to resume from, and its windows hold a part of the last slice instead.
        """
        return 2 * self.state_bytes_per_sequence

    def _bytes_of_all(self, room_lens: list[int]) -> int:
        if self.is_padded:
            return len(room_lens) * self.bytes_of(max(room_lens, default=0))
        return sum(map(self.bytes_of, room_lens))

    def _tokens_in(self, num_bytes: int) -> int:
        if num_bytes < 0:
            return 0
        return num_bytes // self.kv_bytes_per_token if self.kv_bytes_per_token else sys.maxsize


BOUNDLESS = MemoryPool(pool_bytes=sys.maxsize, kv_bytes_per_token=0, state_bytes_per_sequence=0)

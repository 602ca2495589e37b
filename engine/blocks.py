"""A sequence of tokens cut into blocks of 32, each with a key that names it and all that comes before it.

It stores no tensor and knows no cache: the prefix index looks keys up, the scheduler compares sequences with them.
"""

import hashlib
from array import array
from collections.abc import Iterable
from typing import Final

BLOCK_TOKENS: Final = 32
TOKEN_BYTES: Final = 4
BLOCK_BYTES: Final = BLOCK_TOKENS * TOKEN_BYTES
KEY_BYTES: Final = 16  # two different prefixes share a key once in 2^64 blocks; restoring compares the tokens as well


def floor_to_block(length: int) -> int:
    """The largest multiple of a block that is not above `length`."""
    return length // BLOCK_TOKENS * BLOCK_TOKENS


class TokenBlocks:
    """The tokens of one sequence, which only grows. `keys[i]` names blocks 0 to i together: a hash chain.

    Tokens behind the last full block are kept, but have no key yet.
    """

    __slots__ = ("_tokens", "keys")

    def __init__(self, tokens: Iterable[int] = ()) -> None:
        self._tokens = array("I")
        self.keys: list[bytes] = []
        self.extend(tokens)

    @property
    def length(self) -> int:
        """Tokens in all."""
        return len(self._tokens)

    @property
    def num_blocks(self) -> int:
        """Full blocks."""
        return len(self.keys)

    def extend(self, tokens: Iterable[int]) -> None:
        self._tokens.extend(tokens)
        data = memoryview(self._tokens).cast("B")
        key = self.keys[-1] if self.keys else b""
        for block in range(len(self.keys), len(self._tokens) // BLOCK_TOKENS):
            content = data[block * BLOCK_BYTES : (block + 1) * BLOCK_BYTES]
            key = hashlib.blake2b(content, digest_size=KEY_BYTES, key=key).digest()
            self.keys.append(key)

    def content(self, block: int) -> bytes:
        """The tokens of a full block, 4 bytes each."""
        return self._tokens[block * BLOCK_TOKENS : (block + 1) * BLOCK_TOKENS].tobytes()

    def tail(self, block: int) -> tuple[int, ...]:
        """Up to 32 tokens from the start of `block`; fewer at the end of the sequence."""
        return tuple(self._tokens[block * BLOCK_TOKENS : (block + 1) * BLOCK_TOKENS])

    def common_blocks(self, other: "TokenBlocks") -> int:
        """How many leading full blocks both sequences share. Equal keys at i mean equal tokens up to i."""
        low, high = 0, min(self.num_blocks, other.num_blocks)
        while low < high:
            middle = (low + high) // 2
            if self.keys[middle] == other.keys[middle]:
                low = middle + 1
            else:
                high = middle
        return low
